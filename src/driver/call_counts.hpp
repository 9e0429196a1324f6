// How often each entry point was called.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "driver/entry_point.hpp"

namespace cuvmm::driver {

class CallCounts {
 public:
  [[nodiscard]] constexpr std::uint64_t operator[](EntryPoint entry) const noexcept {
    return counts_[static_cast<std::size_t>(entry)];
  }
  constexpr std::uint64_t& operator[](EntryPoint entry) noexcept { return counts_[static_cast<std::size_t>(entry)]; }

  [[nodiscard]] constexpr std::uint64_t total() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts_) sum += count;
    return sum;
  }

  // The entry points that were called, in the order of the list, with their counts.
  [[nodiscard]] std::vector<std::pair<EntryPoint, std::uint64_t>> called() const {
    std::vector<std::pair<EntryPoint, std::uint64_t>> list;
    for (const EntryPointInfo& entry : entry_points)
      if ((*this)[entry.entry_point] != 0) list.emplace_back(entry.entry_point, (*this)[entry.entry_point]);
    return list;
  }

  // What was called between two snapshots: later - earlier.
  friend constexpr CallCounts operator-(const CallCounts& later, const CallCounts& earlier) noexcept {
    CallCounts difference;
    for (std::size_t index = 0; index < entry_point_count; ++index)
      difference.counts_[index] = later.counts_[index] - earlier.counts_[index];
    return difference;
  }
  friend constexpr bool operator==(const CallCounts&, const CallCounts&) noexcept = default;

 private:
  std::array<std::uint64_t, entry_point_count> counts_{};
};

}  // namespace cuvmm::driver
