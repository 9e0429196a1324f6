// What the calling thread has done, the driver's own work left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/decorator.hpp"

namespace cuvmm::bench {

// Allocations by operator new, and instructions, of the calling thread outside the driver. Instructions are those that
// the processor retires in user mode (perf_event_open); none where the system does not let them be counted.
struct ThreadCounters {
  std::uint64_t allocations = 0;
  std::optional<std::uint64_t> instructions{};
};
[[nodiscard]] ThreadCounters thread_counters() noexcept;

// Why instructions cannot be counted; empty where they can.
[[nodiscard]] const std::string& why_no_instructions();

// As long as it lives, what the thread does counts as the driver's.
class WithinDriver {
 public:
  WithinDriver() noexcept;
  WithinDriver(const WithinDriver&) = delete;
  WithinDriver& operator=(const WithinDriver&) = delete;
  WithinDriver(WithinDriver&&) = delete;
  WithinDriver& operator=(WithinDriver&&) = delete;
  ~WithinDriver();
};

// Keeps what happens in the driver out of these counters.
class SetAsideDriver final : public driver::Decorator<SetAsideDriver> {
 public:
  using Decorator::Decorator;

  template <driver::EntryPoint entry, class... Arguments>
  abi::CUresult around(Arguments... arguments) {
    const WithinDriver within;
    return forward<entry>(arguments...);
  }
};

}  // namespace cuvmm::bench
