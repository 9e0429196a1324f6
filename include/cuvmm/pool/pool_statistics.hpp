// What a pool holds and has done, as numbers and in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "cuvmm/units.hpp"

struct CUstream_st;

namespace cuvmm {

// The calls of the driver that a pool made, by kind; those for events are told by `events` alone.
struct PoolDriverCalls {
  std::uint64_t create = 0;      // cuMemCreate
  std::uint64_t release = 0;     // cuMemRelease
  std::uint64_t map = 0;         // cuMemMap
  std::uint64_t set_access = 0;  // cuMemSetAccess
  std::uint64_t unmap = 0;       // cuMemUnmap
  std::uint64_t events = 0;      // times that the pool asked where the work of streams has come to

  [[nodiscard]] std::uint64_t total() const noexcept {  // without events
    return create + release + map + set_access + unmap;
  }
};

// At one device, or at all of a pool. Bytes.
struct PoolStatistics {
  std::size_t live_bytes = 0;        // given out, as it was asked for
  std::size_t live_allocations = 0;  // how many that are
  std::size_t reserved_bytes = 0;    // of physical memory that exists for the pool: its price
  std::size_t pending_bytes = 0;     // freed; the device may not be done with it
  std::size_t recyclable_bytes = 0;  // of chunks with nothing live in them: can be mapped elsewhere or given back
  std::size_t holes = 0;             // free places between or beside what is live, smaller than a chunk's or larger
  std::size_t largest_hole = 0;      // of these: bytes that are free side by side
  std::size_t mappings = 0;          // chunks that are mapped
  std::size_t peak_live_bytes = 0;
  std::size_t peak_reserved_bytes = 0;
  std::uint64_t allocations = 0;  // ever made
  std::uint64_t warm = 0;         // of these, without mapping anything
  std::uint64_t remapped = 0;     // chunks that were moved to another address
  PoolDriverCalls calls{};

  PoolStatistics& operator+=(const PoolStatistics& other) noexcept;  // largest_hole is the larger one
};

// Where an address lies in a pool.
struct PoolAllocation {
  DeviceAddress address{};        // where the allocation begins
  std::size_t bytes = 0;          // as it was asked for
  std::size_t rounded_bytes = 0;  // what it takes
  std::size_t offset = 0;         // of the address that was asked about, bytes from the beginning
  DeviceOrdinal device{};
  CUstream_st* stream = nullptr;  // that it was allocated on

  friend bool operator==(const PoolAllocation&, const PoolAllocation&) noexcept = default;
};

// All of it in sentences, on one line.
[[nodiscard]] std::string to_string(const PoolStatistics& statistics);
[[nodiscard]] std::string to_string(const PoolAllocation& allocation);

}  // namespace cuvmm
