// Reservations of addresses.
#include "conformance/sequences/drawing.hpp"
#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {
namespace {

// cuMemAddressReserve: space size alignment hint_space hint_at flags out. A hint is only one: where the reservation
// lies then depends on the machine, and is not told.

std::optional<std::int64_t> draw_free_space(const World& world, Random& random) {
  std::vector<std::int64_t> free;
  for (int each = 0; each < space::count; ++each)
    if (world.reservation_at({each, 0}) == nullptr) free.push_back(each);
  if (free.empty()) return std::nullopt;
  return random.element(free);
}

// At addresses that are taken, or right behind some that are.
Place draw_hint(const World& world, Random& random) {
  if (world.reservations.empty()) return {space::null, 0};
  const ReservedAddresses& reserved = random.element(world.reservations);
  return {reserved.place.space, random.percent(50) ? reserved.end() : reserved.place.at};
}

void spoil_reservation(Call& call, Random& random) {
  switch (random.below(5)) {
    case 0:
      call.arguments[1] = random.one_of<std::int64_t>(
          {0, 1, 4096, granule_bytes - 1, granule_bytes + 1, granule_bytes + 65536, std::int64_t{1} << 47});
      return;
    case 1:
      call.arguments[2] = random.one_of<std::int64_t>({3, 6 << 20, granule_bytes - 1});
      return;
    case 2:
      call.arguments[4] += random.one_of<std::int64_t>({1, 4096, 65536});
      return;
    case 3:
      call.arguments[5] = random.one_of({1, 2, 4});
      return;
    default:
      call.arguments[6] = 0;
      return;
  }
}

std::optional<Call> draw_reserve(const World& world, Random& random) {
  const auto where = draw_free_space(world, random);
  if (!where) return std::nullopt;
  const std::int64_t size = (1 + random.below(random.percent(60) ? 4 : 24)) * granule_bytes;
  Call call{nullptr, {*where, size, 0, space::null, 0, 0, 1}};
  if (random.percent(25))
    call.arguments[2] = random.one_of<std::int64_t>({1, 4096, 65536, granule_bytes, 2 * granule_bytes, 1 << 30});
  if (random.percent(30)) {
    const Place hint = draw_hint(world, random);
    call.arguments[3] = hint.space;
    call.arguments[4] = hint.at;
    if (call[2] > granule_bytes) call.arguments[2] = 0;  // whether the hint has that alignment depends on the machine
  }
  if (random.percent(wrong_chance)) spoil_reservation(call, random);
  return call;
}

Step reserve(const Call& call, Player& player) {
  CUdeviceptr address = 0;
  const CUresult code = player->cuMemAddressReserve(
      call[6] != 0 ? &address : nullptr, static_cast<std::size_t>(call[1]), static_cast<std::size_t>(call[2]),
      player.address(call[3], call[4]), static_cast<unsigned long long>(call[5]));
  if (code != CUDA_SUCCESS) return {code, ""};
  player.bases.at(static_cast<std::size_t>(call[0])) = address;
  const bool aligned = call[2] == 0 || address % static_cast<CUdeviceptr>(call[2]) == 0;
  return {code, aligned ? "" : "?"};
}

void reserved(const Call& call, World& world) {
  world.reservations.push_back({{static_cast<int>(call[0]), 0}, call[1]});
}

// cuMemAddressFree: space at size

std::optional<Call> draw_free(const World& world, Random& random) {
  DrawnRange range;
  if (!world.reservations.empty()) {
    const ReservedAddresses& reserved = random.element(world.reservations);
    range = {reserved.place, reserved.bytes};
    if (world.is_mapped(reserved.place, reserved.bytes) && !random.percent(15)) return std::nullopt;
  }
  if (random.percent(wrong_chance)) spoil(range, world, random);
  if (!is_within_space(range, world)) return std::nullopt;
  return Call{nullptr, {range.place.space, range.place.at, range.bytes}};
}

Step free(const Call& call, Player& player) {
  return {player->cuMemAddressFree(player.address(call[0], call[1]), static_cast<std::size_t>(call[2])), ""};
}

void freed(const Call& call, World& world) {
  std::erase_if(world.reservations,
                [&](const ReservedAddresses& each) { return each.place.space == call[0] && each.place.at == call[1]; });
}

}  // namespace

std::vector<Operation> address_operations() {
  return {
      {"cuMemAddressReserve", "space size alignment hint_space hint_at flags out", 50, Order::any, draw_reserve,
       reserve, reserved},
      {"cuMemAddressFree", "space at size", 20, Order::all_done, draw_free, free, freed},
  };
}

}  // namespace cuvmm::conformance
