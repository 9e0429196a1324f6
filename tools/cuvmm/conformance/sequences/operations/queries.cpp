// What the driver tells of addresses.
#include <unistd.h>

#include <array>

#include "conformance/sequences/drawing.hpp"
#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {
namespace {

std::string pages(std::uint64_t bytes) {
  return std::to_string(bytes / 4096);
}

// cuPointerGetAttribute: attribute space at out

std::optional<Call> draw_attribute(const World& world, Random& random) {
  const Place place = draw_place(world, random);
  Call call{nullptr, {1 + random.below(20), place.space, place.at, 1}};
  if (random.percent(5)) call.arguments[0] = random.one_of({0, -1, 22, 1000});
  if (random.percent(3)) call.arguments[3] = 0;
  return call;
}

// The value where it is the same everywhere: not of tokens and counters.
std::string attribute_seen(std::int64_t attribute, const std::array<std::uint64_t, 2>& value, const Player& player) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      for (int device = 0; device < player.world->devices; ++device)
        if (value[0] == as_address(player.context(device))) return std::to_string(1 + device);
      return value[0] == 0 ? "0" : "?";
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return "";
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return player.relative(value[0]);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return pages(value[0]);
    default:
      return std::to_string(value[0] & 0xFFFF'FFFF);
  }
}

Step attribute(const Call& call, Player& player) {
  std::array<std::uint64_t, 2> value{};  // the tokens take more than a word
  const CUresult code =
      player->cuPointerGetAttribute(call[3] != 0 ? value.data() : nullptr, static_cast<CUpointer_attribute>(call[0]),
                                    player.address(call[1], call[2]));
  return {code, code == CUDA_SUCCESS ? attribute_seen(call[0], value, player) : ""};
}

// cuPointerGetAttributes: space at

std::optional<Call> draw_attributes(const World& world, Random& random) {
  const Place place = draw_place(world, random);
  return Call{nullptr, {place.space, place.at}};
}

Step attributes(const Call& call, Player& player) {
  std::array<CUpointer_attribute, 3> wanted{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                            CU_POINTER_ATTRIBUTE_MAPPED};
  std::array<int, 3> values{-9, -9, -9};
  std::array<void*, 3> places{&values[0], &values[1], &values[2]};
  const CUresult code =
      player->cuPointerGetAttributes(3, wanted.data(), places.data(), player.address(call[0], call[1]));
  if (code != CUDA_SUCCESS) return {code, ""};
  return {code, std::to_string(values[0]) + "_" + std::to_string(values[1]) + "_" + std::to_string(values[2] & 0xFF)};
}

// cuMemGetAddressRange: space at out

std::optional<Call> draw_range(const World& world, Random& random) {
  const Place place = draw_place(world, random);
  return Call{nullptr, {place.space, place.at, random.percent(92) ? 1 : 0}};
}

Step range(const Call& call, Player& player) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const bool out = call[2] != 0;
  const CUresult code =
      player->cuMemGetAddressRange(out ? &base : nullptr, out ? &size : nullptr, player.address(call[0], call[1]));
  return {code, code == CUDA_SUCCESS && out ? player.relative(base) + "_" + pages(size) : ""};
}

// cuMemGetHandleForAddressRange: space at size type flags

std::optional<Call> draw_dma_buf(const World& world, Random& random) {
  std::optional<DrawnRange> found = draw_whole_mappings(world, random);
  if (!found) return std::nullopt;
  if (random.percent(wrong_chance)) spoil(*found, world, random);
  if (!is_within_space(*found, world)) return std::nullopt;
  Call call{nullptr, {found->place.space, found->place.at, found->bytes, 1, 0}};
  if (random.percent(6)) call.arguments[3] = random.one_of({0, 2});
  if (random.percent(6)) call.arguments[4] = 2;
  return call;
}

Step dma_buf(const Call& call, Player& player) {
  int descriptor = -1;
  const CUresult code = player->cuMemGetHandleForAddressRange(
      &descriptor, player.address(call[0], call[1]), static_cast<std::size_t>(call[2]),
      static_cast<CUmemRangeHandleType>(call[3]), static_cast<unsigned long long>(call[4]));
  if (code == CUDA_SUCCESS) ::close(descriptor);
  return {code, ""};
}

// cuIpcGetMemHandle, cuMemFree: space at. Neither takes such memory.

std::optional<Call> draw_anywhere(const World& world, Random& random) {
  if (world.captures()) return std::nullopt;
  const Place place = draw_place(world, random);
  if (place.space == space::null && place.at == 0) return std::nullopt;  // cuMemFree takes that one
  return Call{nullptr, {place.space, place.at}};
}

Step ipc_handle(const Call& call, Player& player) {
  CUipcMemHandle handle{};
  return {player->cuIpcGetMemHandle(&handle, player.address(call[0], call[1])), ""};
}

Step mem_free(const Call& call, Player& player) {
  return {player->cuMemFree(player.address(call[0], call[1])), ""};
}

}  // namespace

std::vector<Operation> query_operations() {
  return {
      {"cuPointerGetAttribute", "attribute space at out", 45, Order::any, draw_attribute, attribute, nullptr},
      {"cuPointerGetAttributes", "space at", 8, Order::any, draw_attributes, attributes, nullptr},
      {"cuMemGetAddressRange", "space at out", 14, Order::any, draw_range, range, nullptr},
      {"cuMemGetHandleForAddressRange", "space at size type flags", 8, Order::any, draw_dma_buf, dma_buf, nullptr},
      {"cuIpcGetMemHandle", "space at", 3, Order::any, draw_anywhere, ipc_handle, nullptr},
      {"cuMemFree", "space at", 3, Order::all_done, draw_anywhere, mem_free, nullptr},
  };
}

}  // namespace cuvmm::conformance
