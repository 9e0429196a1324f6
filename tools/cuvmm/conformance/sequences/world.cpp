#include "conformance/sequences/world.hpp"

#include <algorithm>
#include <stdexcept>

namespace cuvmm::conformance {
namespace {

template <class Range>
bool overlaps(const Range& range, Place place, std::int64_t bytes) {
  return range.place.space == place.space && range.place.at < place.at + bytes && place.at < range.end();
}

template <class Range>
const Range* range_at(const std::vector<Range>& ranges, Place place) {
  for (const Range& each : ranges)
    if (overlaps(each, place, 1)) return &each;
  return nullptr;
}

template <class Range>
bool any_overlaps(const std::vector<Range>& ranges, Place place, std::int64_t bytes) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& each) { return overlaps(each, place, bytes); });
}

}  // namespace

std::int64_t World::granules_in_use() const {
  std::int64_t sum = 0;
  for (std::size_t index = 0; index < memories.size(); ++index) {
    const auto is = [&](int memory) { return memory == static_cast<int>(index); };
    const bool used =
        std::any_of(handles.begin(), handles.end(), [&](const auto& each) { return each && is(each->memory); }) ||
        std::any_of(descriptors.begin(), descriptors.end(), [&](const auto& each) { return each && is(*each); }) ||
        std::any_of(mappings.begin(), mappings.end(), [&](const auto& each) { return is(each.memory); });
    if (used) sum += memories[index].granules;
  }
  return sum;
}

bool World::captures(std::int64_t stream) const {
  if (!captures() || stream < 0 || stream >= static_cast<std::int64_t>(streams.size())) return false;
  return stream == capturing || streams.at(static_cast<std::size_t>(stream)).joined;
}

const MappedMemory* World::mapping_at(Place place) const {
  return range_at(mappings, place);
}

const ReservedAddresses* World::reservation_at(Place place) const {
  return range_at(reservations, place);
}

bool World::is_on_host(const MappedMemory& mapping) const {
  return memories.at(static_cast<std::size_t>(mapping.memory)).where == Where::host;
}

std::vector<const MappedMemory*> World::mappings_in(Place place, std::int64_t bytes) const {
  std::vector<const MappedMemory*> found;
  for (const MappedMemory& each : mappings)
    if (overlaps(each, place, bytes)) found.push_back(&each);
  return found;
}

bool World::is_mapped(Place place, std::int64_t bytes) const {
  return any_overlaps(mappings, place, bytes);
}

bool World::is_reserved(Place place, std::int64_t bytes) const {
  return any_overlaps(reservations, place, bytes);
}

std::vector<Segment> World::segments(Place place, std::int64_t bytes, int rights) const {
  std::vector<Segment> found;
  while (bytes > 0) {
    const MappedMemory* const mapping = mapping_at(place);
    if (mapping == nullptr || current < 0) return {};
    if ((mapping->rights[static_cast<std::size_t>(current)] & rights) != rights) return {};
    const std::int64_t offset = place.at - mapping->place.at;
    const std::int64_t length = std::min(bytes, mapping->bytes - offset);
    found.push_back({mapping->memory, offset, length});
    place.at += length;
    bytes -= length;
  }
  return found;
}

void World::mark_written(const std::vector<Segment>& segments) {
  for (const Segment& each : segments) {
    std::vector<bool>& written = memories[static_cast<std::size_t>(each.memory)].written;
    const std::int64_t first = (each.offset + block_bytes - 1) / block_bytes;
    for (std::int64_t block = first; (block + 1) * block_bytes <= each.offset + each.bytes; ++block)
      written[static_cast<std::size_t>(block)] = true;
  }
}

void World::mark_unknown(const std::vector<Segment>& segments) {
  for (const Segment& each : segments) {
    std::vector<bool>& written = memories[static_cast<std::size_t>(each.memory)].written;
    for (std::int64_t block = each.offset / block_bytes; block * block_bytes < each.offset + each.bytes; ++block)
      written[static_cast<std::size_t>(block)] = false;
  }
}

bool World::is_known(const std::vector<Segment>& segments) const {
  for (const Segment& each : segments) {
    const std::vector<bool>& written = memories[static_cast<std::size_t>(each.memory)].written;
    for (std::int64_t block = each.offset / block_bytes; block * block_bytes < each.offset + each.bytes; ++block)
      if (!written[static_cast<std::size_t>(block)]) return false;
  }
  return !segments.empty();
}

int World::new_memory(std::int64_t granules, Where where, bool exportable) {
  // Asked of a driver as a mistake, and accepted by none: nobody is to keep an account of so many blocks.
  if (granules < 1 || granules > most_memory_granules) throw std::length_error("memory of no size that is asked for");
  memories.push_back({granules, where, exportable, false,
                      std::vector<bool>(static_cast<std::size_t>(granules * granule_bytes / block_bytes))});
  return static_cast<int>(memories.size()) - 1;
}

}  // namespace cuvmm::conformance
