// Values of ranges of numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace cuvmm::emulator::api {

// Each number has at most one value. Neighbours of equal values are kept as one, so that a range that is set piece by
// piece costs as much as one that is set at once. Not thread-safe.
template <class Value>
class IntervalMap {
 public:
  void set(std::uint64_t begin, std::uint64_t end, const Value& value) {
    if (begin >= end) return;
    clear(begin, end);
    auto next = intervals_.lower_bound(begin);
    if (next != intervals_.end() && next->first == end && next->second.value == value) {
      end = next->second.end;
      next = intervals_.erase(next);
    }
    if (next != intervals_.begin()) {
      Interval& before = std::prev(next)->second;
      if (before.end == begin && before.value == value) {
        before.end = end;
        return;
      }
    }
    intervals_.emplace_hint(next, begin, Interval{end, value});
  }

  void clear(std::uint64_t begin, std::uint64_t end) {
    split(begin);
    split(end);
    intervals_.erase(intervals_.lower_bound(begin), intervals_.lower_bound(end));
  }

  template <class Condition>
  void clear_if(Condition&& condition) {
    std::erase_if(intervals_, [&](const auto& entry) { return condition(entry.second.value); });
  }

  // Calls `work(begin, end, value)` for what has a value within the range, in order, until that answers false.
  template <class Work>
  void for_each_in(std::uint64_t begin, std::uint64_t end, Work&& work) const {
    auto interval = intervals_.upper_bound(begin);
    if (interval != intervals_.begin() && std::prev(interval)->second.end > begin) --interval;
    for (; interval != intervals_.end() && interval->first < end; ++interval)
      if (!work(std::max(begin, interval->first), std::min(end, interval->second.end), interval->second.value)) return;
  }

  [[nodiscard]] bool empty() const noexcept { return intervals_.empty(); }
  [[nodiscard]] std::size_t intervals() const noexcept { return intervals_.size(); }

 private:
  struct Interval {
    std::uint64_t end = 0;
    Value value{};
  };

  // Makes `at` the beginning of an interval, where it lies inside one.
  void split(std::uint64_t at) {
    auto after = intervals_.upper_bound(at);
    if (after == intervals_.begin()) return;
    const auto inside = std::prev(after);
    if (inside->first == at || inside->second.end <= at) return;
    intervals_.emplace_hint(after, at, inside->second);
    inside->second.end = at;
  }

  std::map<std::uint64_t, Interval> intervals_;  // by their beginnings
};

}  // namespace cuvmm::emulator::api
