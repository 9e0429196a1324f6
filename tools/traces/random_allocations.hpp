// Allocations that are made up.
#pragma once

#include <cstdint>

#include "traces/allocation_trace.hpp"

namespace cuvmm::traces {

struct RandomAllocations {
  std::uint64_t seed = 1;
  std::uint64_t count = 10'000;
  std::uint64_t live_bytes = std::uint64_t{8} << 30;  // at most, and almost so many once there are
};

inline constexpr std::uint64_t least_random_bytes = std::uint64_t{1} << 16;
inline constexpr std::uint64_t most_random_bytes = std::uint64_t{1} << 30;

// So many allocations of 2^16 to 2^30 bytes, whose logarithm is uniform, in one stream. Before one that would be too
// much, allocations that are drawn at random are freed. The same ones for the same seed on every machine. Throws Broken
// for less than 2^30 live bytes.
[[nodiscard]] AllocationTrace random_allocations(const RandomAllocations& settings);

}  // namespace cuvmm::traces
