// Physical memory of a pool, mapped somewhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuvmm/mapping.hpp"
#include "cuvmm/shared_physical_memory.hpp"

namespace cuvmm::pool {

// One allocation of physical memory and its one mapping. The mapping comes last, so that it goes first.
struct Chunk {
  SharedPhysicalMemory memory;
  Mapping mapping;

  [[nodiscard]] std::size_t bytes() const noexcept { return memory.size(); }
};

// Bytes side by side; offsets count from the beginning of the pool's addresses.
struct Place {
  std::size_t offset = 0;
  std::size_t bytes = 0;

  [[nodiscard]] std::size_t end() const noexcept { return offset + bytes; }
};

// The number of a stream in its pool. Memory that the device is known to be done with is everybody's.
using StreamNumber = std::uint32_t;
inline constexpr StreamNumber everybody = 0;

// Whose some free memory is: of a stream, which gave it back as its `freed`-th, or everybody's.
struct Claim {
  StreamNumber stream = everybody;
  std::uint64_t freed = 0;
};

// A live allocation, as its stream asked for it.
struct Tenant {
  StreamNumber stream = everybody;
  std::size_t asked = 0;  // bytes
};

}  // namespace cuvmm::pool
