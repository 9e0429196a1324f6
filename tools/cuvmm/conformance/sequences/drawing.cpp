#include "conformance/sequences/drawing.hpp"

#include <algorithm>

namespace cuvmm::conformance {

std::optional<std::int64_t> draw_handle(const World& world, Random& random) {
  return draw_slot(
      world.handles, random, [](const auto& slot) { return slot.has_value(); }, true);
}

std::optional<std::int64_t> draw_free_handle_slot(const World& world, Random& random) {
  return draw_slot(
      world.handles, random, [](const auto& slot) { return slot.has_value(); }, false);
}

std::optional<Place> draw_mapped_place(const World& world, Random& random) {
  if (world.mappings.empty()) return std::nullopt;
  const MappedMemory& mapping = random.element(world.mappings);
  Place place = mapping.place;
  if (random.percent(50)) place.at += random.below(mapping.bytes / block_bytes) * block_bytes;
  if (random.percent(15)) place.at += random.below(block_bytes);
  return place;
}

Place draw_place(const World& world, Random& random) {
  if (const auto mapped = draw_mapped_place(world, random); mapped && random.percent(80)) return *mapped;
  if (!world.reservations.empty() && random.percent(60)) {
    const ReservedAddresses& reserved = random.element(world.reservations);
    return {reserved.place.space, reserved.place.at + random.below(reserved.bytes / granule_bytes) * granule_bytes};
  }
  return {random.one_of({space::null, space::nowhere}), random.one_of<std::int64_t>({0, 0, 4096, granule_bytes})};
}

std::optional<DrawnRange> draw_whole_mappings(const World& world, Random& random) {
  if (world.mappings.empty()) return std::nullopt;
  const MappedMemory& first = random.element(world.mappings);
  DrawnRange range{first.place, first.bytes};
  if (!random.percent(35)) return range;
  for (const MappedMemory& last : world.mappings)
    if (last.place.space == first.place.space && last.place.at >= first.end() && random.percent(60)) {
      range.bytes = last.end() - first.place.at;
      break;
    }
  return range;
}

void spoil(DrawnRange& range, const World& world, Random& random) {
  switch (random.below(10)) {
    case 0:
      range.bytes = std::max<std::int64_t>(range.bytes - granule_bytes, 0);
      return;
    case 1:
      range.bytes += granule_bytes;
      return;
    case 2:
      range.place.at += granule_bytes;
      range.bytes -= granule_bytes;
      return;
    case 3:
      range.bytes += random.one_of<std::int64_t>({-1, 1, 4096, -4096, 65536});
      return;
    case 4:
      range.place.at += random.one_of<std::int64_t>({1, 4096, 65536});
      return;
    case 5:
      range.bytes = 0;
      return;
    case 6:
      range.place = draw_place(world, random);
      return;
    case 7:
      range.place = {random.one_of({space::null, space::nowhere}), 0};
      return;
    case 8:
      range.place.at -= granule_bytes;
      range.bytes += granule_bytes;
      return;
    default:
      range.place.at -= granule_bytes;
      return;
  }
}

bool is_within_space(const DrawnRange& range, const World& world) {
  const Place place = range.place;
  if (place.space == space::null || place.space == space::nowhere) return true;
  if (place.at < 0 || range.bytes < 0) return false;
  const ReservedAddresses* const reserved = world.reservation_at(place);
  return reserved != nullptr && place.at + range.bytes <= reserved->end();
}

}  // namespace cuvmm::conformance
