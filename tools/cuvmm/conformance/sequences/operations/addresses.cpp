// Reservations of addresses.
#include "conformance/sequences/drawing.hpp"
#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {
namespace {

constexpr std::int64_t no_hint = -1;

// cuMemAddressReserve: space hint size alignment flags out. A hint in the window; a reservation in a space of its own
// goes where the driver places it.

std::optional<std::int64_t> draw_floating_space(const World& world, Random& random) {
  std::vector<std::int64_t> free;
  for (int each = space::first_floating; each < space::count; ++each)
    if (world.reservation_at({each, 0}) == nullptr) free.push_back(each);
  if (free.empty()) return std::nullopt;
  return random.element(free);
}

std::optional<Call> draw_floating(const World& world, Random& random, std::int64_t size) {
  const auto where = draw_floating_space(world, random);
  if (!where) return std::nullopt;
  Call call{nullptr, {*where, no_hint, size, 0, 0, 1}};
  if (random.percent(50))
    call.arguments[3] = random.one_of<std::int64_t>({1, 4096, 65536, granule_bytes, 2 * granule_bytes, 1 << 30});
  if (world.reservations.empty() || !random.percent(25)) return call;
  const ReservedAddresses& taken = random.element(world.reservations);
  if (taken.place.space == space::window) call.arguments[1] = taken.place.at;
  return call;
}

// The hint is at free addresses: beside another reservation often, so that calls can run over both.
std::optional<Call> draw_in_window(const World& world, Random& random, std::int64_t size) {
  std::int64_t at = random.below(window_granules) * granule_bytes;
  if (!world.reservations.empty() && random.percent(50)) {
    const ReservedAddresses& neighbour = random.element(world.reservations);
    if (neighbour.place.space == space::window) at = neighbour.end();
  }
  const Place place{space::window, at};
  if (at + size > window_bytes || world.is_reserved(place, size) || world.is_mapped(place, size)) return std::nullopt;
  return Call{nullptr, {space::window, at, size, 0, 0, 1}};
}

void spoil_reservation(Call& call, Random& random) {
  switch (random.below(5)) {
    case 0:
      call.arguments[2] = random.one_of<std::int64_t>(
          {0, 1, 4096, granule_bytes - 1, granule_bytes + 1, granule_bytes + 65536, std::int64_t{1} << 47});
      return;
    case 1:
      call.arguments[3] = random.one_of<std::int64_t>({3, 6 << 20, granule_bytes - 1});
      return;
    case 2:
      if (call[1] != no_hint)
        call.arguments[1] += random.one_of<std::int64_t>({1, 4096, 65536});
      else
        call.arguments[4] = 2;
      return;
    case 3:
      call.arguments[4] = random.one_of({1, 2, 4});
      return;
    default:
      call.arguments[5] = 0;
      return;
  }
}

std::optional<Call> draw_reserve(const World& world, Random& random) {
  const std::int64_t size = (1 + random.below(random.percent(70) ? 4 : 12)) * granule_bytes;
  auto call = random.percent(80) ? draw_in_window(world, random, size) : draw_floating(world, random, size);
  if (call && random.percent(wrong_chance)) spoil_reservation(*call, random);
  return call;
}

Step reserve(const Call& call, Player& player) {
  const CUdeviceptr hint = call[1] == no_hint ? 0 : player.address(space::window, call[1]);
  CUdeviceptr address = 0;
  const CUresult code =
      player->cuMemAddressReserve(call[5] != 0 ? &address : nullptr, static_cast<std::size_t>(call[2]),
                                  static_cast<std::size_t>(call[3]), hint, static_cast<unsigned long long>(call[4]));
  if (code != CUDA_SUCCESS) return {code, ""};
  if (call[0] == space::window) {
    player.misplaced = address != hint;
    if (!player.misplaced) return {code, ""};
    static_cast<void>(player->cuMemAddressFree(address, static_cast<std::size_t>(call[2])));
    return {code, "~"};
  }
  player.bases.at(static_cast<std::size_t>(call[0])) = address;
  const bool aligned = call[3] == 0 || address % static_cast<CUdeviceptr>(call[3]) == 0;
  return {code, std::string{aligned ? "" : "?"} + (address == hint ? "+" : "")};
}

void reserved(const Call& call, World& world) {
  const std::int64_t at = call[0] == space::window ? call[1] : 0;
  world.reservations.push_back({{static_cast<int>(call[0]), at}, call[2]});
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
      {"cuMemAddressReserve", "space hint size alignment flags out", 50, Order::any, draw_reserve, reserve, reserved},
      {"cuMemAddressFree", "space at size", 20, Order::all_done, draw_free, free, freed},
  };
}

}  // namespace cuvmm::conformance
