// Mappings and rights.
#include <algorithm>
#include <array>

#include "conformance/sequences/drawing.hpp"
#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {
namespace {

constexpr std::int64_t no_handle = -1;

// cuMemMap: space at size offset handle flags

// A free place in a reservation, for that many bytes: behind another mapping often, so that calls can run over both.
std::optional<Place> draw_free_place(const World& world, Random& random, std::int64_t bytes) {
  if (world.reservations.empty()) return std::nullopt;
  Place place;
  if (!world.mappings.empty() && random.percent(60)) {
    const MappedMemory& neighbour = random.element(world.mappings);
    place = {neighbour.place.space, neighbour.end()};
  } else {
    const ReservedAddresses& any = random.element(world.reservations);
    place = {any.place.space, random.below(any.bytes / granule_bytes) * granule_bytes};
  }
  const ReservedAddresses* const reserved = world.reservation_at(place);
  if (reserved == nullptr || place.at + bytes > reserved->end() || world.is_mapped(place, bytes)) return std::nullopt;
  return place;
}

// None of these can be accepted but by mistake, and then nothing but the reservation is touched.
void spoil_mapping(Call& call, const World& world, Random& random) {
  switch (random.below(7)) {
    case 0:
      call.arguments[1] += random.one_of<std::int64_t>({1, 4096, 65536});
      return;
    case 1:
      call.arguments[2] += random.one_of<std::int64_t>({-granule_bytes, granule_bytes, -1, 1, 4096});
      return;
    case 2:
      call.arguments[3] = random.one_of<std::int64_t>({1, 4096, granule_bytes, std::int64_t{1} << 40});
      return;
    case 3:
      call.arguments[4] = no_handle;
      return;
    case 4:
      call.arguments[5] = random.one_of({1, 2});
      return;
    case 5:
      call.arguments[0] = random.one_of({space::null, space::nowhere});
      call.arguments[1] = 0;
      return;
    default:
      if (world.mappings.empty()) {
        call.arguments[2] = 0;
        return;
      }
      const MappedMemory& taken = random.element(world.mappings);
      call.arguments[0] = taken.place.space;
      call.arguments[1] = taken.place.at;
      return;
  }
}

// A real driver of two devices mistakes what is granted to whom once such memory was mapped in two places.
bool is_mapped_rdma_memory(int memory, const World& world) {
  return world.memories.at(static_cast<std::size_t>(memory)).rdma &&
         std::any_of(world.mappings.begin(), world.mappings.end(),
                     [&](const MappedMemory& each) { return each.memory == memory; });
}

std::optional<Call> draw_map(const World& world, Random& random) {
  const auto handle = draw_handle(world, random);
  if (!handle) return std::nullopt;
  const int memory = world.handles.at(static_cast<std::size_t>(*handle)).value().memory;
  const std::int64_t bytes = world.memories.at(static_cast<std::size_t>(memory)).granules * granule_bytes;
  const auto place = draw_free_place(world, random, bytes);
  if (!place) return std::nullopt;
  if (is_mapped_rdma_memory(memory, world)) return std::nullopt;
  Call call{nullptr, {place->space, place->at, bytes, 0, *handle, 0}};
  if (random.percent(wrong_chance)) spoil_mapping(call, world, random);
  return call;
}

Step map(const Call& call, Player& player) {
  const CUmemGenericAllocationHandle handle =
      call[4] == no_handle ? 0 : player.handles.at(static_cast<std::size_t>(call[4]));
  return {player->cuMemMap(player.address(call[0], call[1]), static_cast<std::size_t>(call[2]),
                           static_cast<std::size_t>(call[3]), handle, static_cast<unsigned long long>(call[5])),
          ""};
}

void mapped(const Call& call, World& world) {
  if (call[4] == no_handle) return;
  const int memory = world.handles.at(static_cast<std::size_t>(call[4])).value().memory;
  world.mappings.push_back({{static_cast<int>(call[0]), call[1]}, call[2], memory, {}});
}

// cuMemUnmap: space at size

std::optional<Call> draw_unmap(const World& world, Random& random) {
  std::optional<DrawnRange> range = draw_whole_mappings(world, random);
  if (!range || random.percent(8)) {
    if (world.reservations.empty()) return std::nullopt;
    const ReservedAddresses& reserved = random.element(world.reservations);
    range = DrawnRange{reserved.place, reserved.bytes};
  }
  if (random.percent(wrong_chance)) spoil(*range, world, random);
  if (!is_within_space(*range, world)) return std::nullopt;
  return Call{nullptr, {range->place.space, range->place.at, range->bytes}};
}

Step unmap(const Call& call, Player& player) {
  return {player->cuMemUnmap(player.address(call[0], call[1]), static_cast<std::size_t>(call[2])), ""};
}

bool is_within(const MappedMemory& mapping, const Call& call) {
  return mapping.place.space == call[0] && mapping.place.at >= call[1] && mapping.end() <= call[1] + call[2];
}

void unmapped(const Call& call, World& world) {
  std::erase_if(world.mappings, [&](const MappedMemory& each) { return is_within(each, call); });
  world.graph.launchable = false;
}

// cuMemSetAccess: space at size count and up to three descriptors, as type * 65536 + id * 256 + flags

constexpr std::int64_t descriptor(std::int64_t type, std::int64_t id, std::int64_t flags) {
  return type * 65536 + (id & 255) * 256 + flags;
}

CUmemAccessDesc access_descriptor(std::int64_t encoded) {
  return access_of(static_cast<signed char>(encoded / 256 % 256), static_cast<int>(encoded % 256),
                   static_cast<int>(encoded / 65536));
}

std::int64_t draw_descriptor(const World& world, Random& random, bool on_host) {
  const std::int64_t flags = random.one_of({3, 3, 3, 3, 1, 1, 0});
  if (on_host && random.percent(30))
    return descriptor(random.one_of({CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA}), 0, flags);
  return descriptor(CU_MEM_LOCATION_TYPE_DEVICE, random.below(world.devices), flags);
}

void spoil_descriptor(std::int64_t& encoded, Random& random) {
  switch (random.below(3)) {
    case 0:
      encoded = descriptor(1, random.one_of({-1, 99}), 3);
      return;
    case 1:
      encoded = descriptor(1, 0, random.one_of({2, 4}));
      return;
    default:
      encoded = descriptor(random.one_of({0, 2, 3, 4, 5}), 0, 3);
      return;
  }
}

// Whether the host is to be granted a range of host memory and device memory: a real driver may grant a part of it and
// refuse all the same.
bool mixes_locations(const Call& call, const DrawnRange& range, const World& world) {
  bool for_host = false;
  for (std::size_t each = 0; each < static_cast<std::size_t>(call[3]); ++each)
    for_host |= call[4 + each] / 65536 != CU_MEM_LOCATION_TYPE_DEVICE;
  bool host = false;
  bool device = false;
  for (const MappedMemory* each : world.mappings_in(range.place, range.bytes))
    (world.is_on_host(*each) ? host : device) = true;
  return for_host && host && device;
}

std::optional<Call> draw_set_access(const World& world, Random& random) {
  std::optional<DrawnRange> range = draw_whole_mappings(world, random);
  if (!range) return std::nullopt;
  const MappedMemory* const first = world.mapping_at(range->place);
  const bool on_host = world.memories.at(static_cast<std::size_t>(first->memory)).where == Where::host;
  Call call;
  call.arguments[3] = random.one_of({1, 1, 1, 2, 2, 3});
  for (std::size_t each = 0; each < 3; ++each)
    if (static_cast<std::int64_t>(each) < call[3]) call.arguments[4 + each] = draw_descriptor(world, random, on_host);
  if (random.percent(wrong_chance)) {
    if (random.percent(60))
      spoil(*range, world, random);
    else if (random.percent(80))
      spoil_descriptor(call.arguments[4], random);
    else
      call.arguments[3] = 0;
  }
  if (!is_within_space(*range, world) || mixes_locations(call, *range, world)) return std::nullopt;
  call.arguments[0] = range->place.space;
  call.arguments[1] = range->place.at;
  call.arguments[2] = range->bytes;
  return call;
}

Step set_access(const Call& call, Player& player) {
  const std::array<CUmemAccessDesc, 3> list{access_descriptor(call[4]), access_descriptor(call[5]),
                                            access_descriptor(call[6])};
  return {player->cuMemSetAccess(player.address(call[0], call[1]), static_cast<std::size_t>(call[2]), list.data(),
                                 static_cast<std::size_t>(call[3])),
          ""};
}

void access_set(const Call& call, World& world) {
  const bool several = world.mappings_in({static_cast<int>(call[0]), call[1]}, call[2]).size() > 1;
  for (MappedMemory& mapping : world.mappings) {
    if (!is_within(mapping, call)) continue;
    mapping.granted_with_others = several;
    for (std::size_t each = 0; each < static_cast<std::size_t>(call[3]); ++each) {
      const CUmemAccessDesc granted = access_descriptor(call[4 + each]);
      const bool device = granted.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
      mapping.rights.at(device ? static_cast<std::size_t>(granted.location.id) : 2) = granted.flags;
    }
  }
  world.graph.launchable = false;
}

// cuMemGetAccess: space at type id out

std::optional<Call> draw_get_access(const World& world, Random& random) {
  const Place place = draw_place(world, random);
  Call call{nullptr, {place.space, place.at, CU_MEM_LOCATION_TYPE_DEVICE, random.below(world.devices), 1}};
  if (random.percent(15)) call.arguments[2] = random.one_of({2, 3});
  if (!random.percent(wrong_chance / 2)) return call;
  if (random.percent(30))
    call.arguments[4] = 0;
  else if (random.percent(50))
    call.arguments[2] = random.one_of({0, 4, 5});
  else
    call.arguments[3] = random.one_of({-1, 99});
  return call;
}

Step get_access(const Call& call, Player& player) {
  unsigned long long flags = 9;  // no rights have this value: it shows that the driver wrote nothing
  const CUmemLocation where = location(static_cast<int>(call[3]), static_cast<int>(call[2]));
  const CUresult code =
      player->cuMemGetAccess(call[4] != 0 ? &flags : nullptr, &where, player.address(call[0], call[1]));
  return {code, std::to_string(flags)};
}

}  // namespace

std::vector<Operation> mapping_operations() {
  return {
      {"cuMemMap", "space at size offset handle flags", 200, Order::any, draw_map, map, mapped},
      {"cuMemUnmap", "space at size", 38, Order::all_done, draw_unmap, unmap, unmapped},
      {"cuMemSetAccess", "space at size count first second third", 150, Order::all_done, draw_set_access, set_access,
       access_set},
      {"cuMemGetAccess", "space at type id out", 40, Order::any, draw_get_access, get_access, nullptr},
  };
}

}  // namespace cuvmm::conformance
