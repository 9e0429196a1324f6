// What a piece of work costs.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "bench/thread_counters.hpp"
#include "cuvmm/driver.hpp"
#include "driver/counting_driver.hpp"

namespace cuvmm::bench {

struct Cost {
  double milliseconds = 0;
  // On the emulated driver, whose times mean nothing:
  std::uint64_t driver_calls = 0;  // of all threads
  std::uint64_t allocations = 0;   // of the calling thread, as its instructions; without the driver's
  std::optional<std::uint64_t> instructions{};

  // Of both, one after the other.
  friend Cost operator+(const Cost& one, const Cost& other) noexcept {
    Cost sum{one.milliseconds + other.milliseconds,
             one.driver_calls + other.driver_calls,
             one.allocations + other.allocations,
             {}};
    if (one.instructions && other.instructions) sum.instructions = *one.instructions + *other.instructions;
    return sum;
  }
};

// Measures work that is done with its driver: on a GPU how long it takes, on the emulated driver also what it asks for.
// For one thread.
class Meter {
 public:
  explicit Meter(const Driver& driver) : driver_(driver) {
    if (!driver.is_emulated()) return;
    counting_ = std::make_shared<driver::CountingDriver>(std::make_shared<SetAsideDriver>(driver.shared_interface()));
    driver_ = Driver::wrap(counting_);
  }

  // The driver to do the work with. Nothing stands between it and a GPU's.
  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  // Whether calls are counted, and times mean nothing.
  [[nodiscard]] bool counts() const noexcept { return counting_ != nullptr; }

  template <class Work>
  Cost measure(Work&& work) const {
    const ThreadCounters before = counts() ? thread_counters() : ThreadCounters{};
    const std::uint64_t calls = counts() ? counting_->snapshot().total() : 0;
    const auto begin = std::chrono::steady_clock::now();
    std::forward<Work>(work)();
    Cost cost;
    cost.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (!counts()) return cost;
    const ThreadCounters after = thread_counters();
    cost.driver_calls = counting_->snapshot().total() - calls;
    cost.allocations = after.allocations - before.allocations;
    if (after.instructions && before.instructions) cost.instructions = *after.instructions - *before.instructions;
    return cost;
  }

 private:
  Driver driver_;
  std::shared_ptr<driver::CountingDriver> counting_;
};

}  // namespace cuvmm::bench
