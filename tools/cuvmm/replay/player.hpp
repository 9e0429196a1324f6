// Plays a trace on an allocator, and watches the memory.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "driver/counting_driver.hpp"
#include "replay/allocator.hpp"
#include "traces/allocation_trace.hpp"

namespace cuvmm::replay {

// An allocation for which there was no memory.
struct Refused {
  std::size_t event = 0;       // of the trace, from 0
  std::uint64_t bytes = 0;     // asked for
  std::uint64_t live = 0;      // allocated then
  std::uint64_t physical = 0;  // held then
};

struct Played {
  std::string name;
  std::string description;
  std::uint64_t peak_physical = 0;
  std::uint64_t peak_live = 0;  // of what was given out; less than the trace's where something was refused
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
  std::uint64_t refused = 0;
  std::optional<Refused> first_refused{};
  driver::CallCounts calls{};  // of allocate and free
  double milliseconds = 0;     // in them
  // After each event.
  std::vector<std::uint64_t> physical{};
  std::vector<std::uint64_t> live{};
  // After the event that `look_at` names: what was held, if the allocator knows, and what was allocated, in the order
  // of addresses.
  std::vector<Extent> held{};
  std::vector<Extent> allocated{};

  [[nodiscard]] double ratio() const noexcept {  // of the peaks
    return peak_live == 0 ? 0 : static_cast<double>(peak_physical) / static_cast<double>(peak_live);
  }
};

// Plays all events, in order. Calls step() after each. What was refused is not freed, either. Throws cuvmm::Error where
// the driver fails otherwise.
[[nodiscard]] Played play(const traces::AllocationTrace& trace, Allocator& allocator,
                          const driver::CountingDriver& counting, std::size_t look_at,
                          const std::function<void()>& step = {});

}  // namespace cuvmm::replay
