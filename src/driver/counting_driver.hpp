// Counts the calls of each entry point.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "driver/call_counts.hpp"
#include "driver/decorator.hpp"

namespace cuvmm::driver {

// A call counts when it starts, whatever its answer. Thread-safe; a snapshot taken while other threads call holds each
// count at some moment during the snapshot.
class CountingDriver final : public Decorator<CountingDriver> {
 public:
  using Decorator::Decorator;

  [[nodiscard]] CallCounts snapshot() const noexcept;

  // Sets all counts to 0.
  void reset() noexcept;

  template <EntryPoint entry, class... Arguments>
  CUresult around(Arguments... arguments) {
    counts_[static_cast<std::size_t>(entry)].fetch_add(1, std::memory_order_relaxed);
    return forward<entry>(arguments...);
  }

 private:
  std::array<std::atomic<std::uint64_t>, entry_point_count> counts_{};
};

}  // namespace cuvmm::driver
