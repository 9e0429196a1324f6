// What the operations' arguments are drawn with.
#pragma once

#include <optional>
#include <vector>

#include "conformance/sequences/random.hpp"
#include "conformance/sequences/world.hpp"

namespace cuvmm::conformance {

// The chance, in percent, that an operation is given something wrong.
inline constexpr int wrong_chance = 22;

// The index of a slot that is, or is not, taken; nothing if there is none.
template <class Slots, class IsTaken>
std::optional<std::int64_t> draw_slot(const Slots& slots, Random& random, IsTaken is_taken, bool taken) {
  std::vector<std::int64_t> fitting;
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    if (is_taken(slots[slot]) == taken) fitting.push_back(static_cast<std::int64_t>(slot));
  if (fitting.empty()) return std::nullopt;
  return random.element(fitting);
}

[[nodiscard]] std::optional<std::int64_t> draw_handle(const World& world, Random& random);
[[nodiscard]] std::optional<std::int64_t> draw_free_handle_slot(const World& world, Random& random);

// Any place: where something is mapped, mostly; within a reservation; where nothing is; null.
[[nodiscard]] Place draw_place(const World& world, Random& random);

// An address within a mapping, or nothing if there is none.
[[nodiscard]] std::optional<Place> draw_mapped_place(const World& world, Random& random);

// A range of mappings side by side, with or without holes between them.
struct DrawnRange {
  Place place;
  std::int64_t bytes = 0;
};
[[nodiscard]] std::optional<DrawnRange> draw_whole_mappings(const World& world, Random& random);

// Makes the range a wrong one, or one that only looks like it: a part, more, unaligned, empty, at a place that is none.
void spoil(DrawnRange& range, const World& world, Random& random);

// Whether the range stays within what is known: one reservation, or addresses that are none.
[[nodiscard]] bool is_within_space(const DrawnRange& range, const World& world);

}  // namespace cuvmm::conformance
