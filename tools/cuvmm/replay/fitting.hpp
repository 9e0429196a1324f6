// Memory for allocations that are all known beforehand.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "driver/counting_driver.hpp"
#include "replay/allocator.hpp"
#include "traces/allocation_trace.hpp"

namespace cuvmm::replay {

// What it takes to serve a trace with no more memory than it needs at the worst moment.
struct Fit {
  std::uint64_t peak_live = 0;
  std::uint64_t chunk_bytes = 0;     // the granularity of the device
  std::uint64_t chunks = 0;          // that are needed; all of them are created before the first event
  bool fits = true;                  // false: the device has not so many, and nothing was mapped
  std::uint64_t rounding_bytes = 0;  // of the allocations that are live when most chunks are needed
  std::uint64_t exact_scale = 1;     // by which every size is a multiple of a chunk
  driver::CallCounts calls{};
  // The least room in which the allocations were found to fit where each keeps one place in it for all its life, as
  // without virtual memory management: the best of several greedy orders, so not the least that there may be. None
  // where there are too many allocations to try.
  std::optional<std::uint64_t> packed_bytes{};

  [[nodiscard]] std::uint64_t physical_bytes() const noexcept { return chunks * chunk_bytes; }
  // That such a packing takes, all of them side by side.
  [[nodiscard]] std::optional<std::uint64_t> packed_chunks() const noexcept {
    if (!packed_bytes) return std::nullopt;
    return (*packed_bytes + chunk_bytes - 1) / chunk_bytes;
  }
};

// How many chunks the trace needs at a time, and what is lost to rounding then.
[[nodiscard]] Fit needed_chunks(const traces::AllocationTrace& trace, std::uint64_t chunk_bytes);

// The least of several greedy orders: largest first, longest first, largest area first, earliest first; each allocation
// at the lowest place that is free for all its life. Nothing for more than 20,000 allocations.
[[nodiscard]] std::optional<std::uint64_t> packed_bytes(const traces::AllocationTrace& trace);

// Does it on the driver: creates so many chunks, and maps for each allocation, at addresses of its own, chunks that no
// other one uses at that time. Where the device has not so many it is left at that. Calls step() after each event.
[[nodiscard]] Fit fit(const traces::AllocationTrace& trace, const Bench& bench, const driver::CountingDriver& counting,
                      const std::function<void()>& step = {});

}  // namespace cuvmm::replay
