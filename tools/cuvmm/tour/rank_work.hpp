// What one rank does in 4.16.4.4 where ranks are processes: it makes a team with the others, and reduces the input with
// them through a multicast address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cuvmm/team/bootstrap.hpp"
#include "tour/gpu.hpp"
#include "tour/input_file.hpp"

namespace cuvmm::tour {

// Checksums of what should be the input.
struct RankSums {
  std::uint64_t summed = 0;  // shares of all ranks, by multimem.ld_reduce of this one
  std::uint64_t stored = 0;  // that sum, by multimem.st of rank 0, as it is seen in this rank's own memory
  std::uint64_t added = 0;   // shares that all ranks have added there by multimem.red

  friend bool operator==(const RankSums&, const RankSums&) = default;
};

// Takes part as the bootstrap's rank, with `bytes` bytes of the device behind the object, the same on all ranks: a
// multiple of the multicast granularity. Throws cuvmm::Error, the same on all ranks where one was refused something,
// and std::runtime_error if a rank has waited in a kernel for others in vain.
[[nodiscard]] RankSums reduce_as_rank(std::unique_ptr<team::Bootstrap> bootstrap, Gpu& gpu, const InputFile& input,
                                      std::size_t bytes);

}  // namespace cuvmm::tour
