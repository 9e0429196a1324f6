// Free places within one range of addresses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "pool/chunk.hpp"

namespace cuvmm::pool {

// Holes side by side are one. The smallest that fits is taken from. Knows nothing of the driver; not thread-safe.
class Holes {
 public:
  // Bytes out of the smallest hole that has them at a multiple of `alignment`, wherever it begins. O(log n).
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes, std::size_t alignment, std::size_t unit) {
    const std::size_t spare = alignment > unit ? alignment - unit : 0;
    const auto found = by_size_.lower_bound({bytes + spare, 0});
    if (found == by_size_.end()) return std::nullopt;
    const Place hole{found->second, found->first};
    erase(by_offset_.find(hole.offset));
    const std::size_t begin = (hole.offset + alignment - 1) / alignment * alignment;
    insert({hole.offset, begin - hole.offset});
    insert({begin + bytes, hole.end() - begin - bytes});
    return begin;
  }

  // False, and nothing is changed, where some of it is a hole already.
  [[nodiscard]] bool give(Place place) {
    auto next = by_offset_.lower_bound(place.offset);
    if (next != by_offset_.end() && next->first < place.end()) return false;
    if (next != by_offset_.begin()) {
      const auto before = std::prev(next);
      const std::size_t end = before->first + before->second;
      if (end > place.offset) return false;
      if (end == place.offset) {
        place = {before->first, before->second + place.bytes};
        erase(before);
      }
    }
    if (next != by_offset_.end() && next->first == place.end()) {
      place.bytes += next->second;
      erase(next);
    }
    insert(place);
    return true;
  }

  // The hole that ends there; empty where none does.
  [[nodiscard]] Place ending_at(std::size_t end) const {
    if (by_offset_.empty()) return {end, 0};
    const auto& [offset, bytes] = *by_offset_.rbegin();
    return offset + bytes == end ? Place{offset, bytes} : Place{end, 0};
  }
  void take_whole(std::size_t offset) { erase(by_offset_.find(offset)); }

 private:
  using ByOffset = std::map<std::size_t, std::size_t>;

  void insert(const Place& place) {
    if (place.bytes == 0) return;
    by_offset_.emplace(place.offset, place.bytes);
    by_size_.emplace(place.bytes, place.offset);
  }
  void erase(ByOffset::const_iterator hole) {
    if (hole == by_offset_.end()) return;
    by_size_.erase({hole->second, hole->first});
    by_offset_.erase(hole);
  }

  ByOffset by_offset_;
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
};

}  // namespace cuvmm::pool
