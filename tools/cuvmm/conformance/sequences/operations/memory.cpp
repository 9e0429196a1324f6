// Physical memory and its handles: creating, releasing, retaining, sharing, asking.
#include <unistd.h>

#include <algorithm>

#include "conformance/sequences/drawing.hpp"
#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {
namespace {

constexpr std::int64_t none = -1;  // in place of a slot: handle 0, descriptor -1, or no place for the answer

// cuMemCreate: slot size location_type id handle_types compression rdma flags

bool is_slot(std::int64_t index) {
  return index != none;
}

Where where_of(const Call& call) {
  if (call[2] != CU_MEM_LOCATION_TYPE_DEVICE) return Where::host;
  return call[3] == 0 ? Where::device_0 : Where::device_1;
}

void spoil_creation(Call& call, Random& random) {
  switch (random.below(8)) {
    case 0:
      call.arguments[1] = random.one_of<std::int64_t>({0, 1, 65536, granule_bytes / 2, granule_bytes - 1});
      return;
    case 1:
      call.arguments[1] += random.one_of<std::int64_t>({-1, 1, 4096, granule_bytes / 2});
      return;
    case 2:
      call.arguments[1] = std::int64_t{1} << random.one_of({40, 44, 62});
      return;
    case 3:
      call.arguments[2] = random.one_of({0, 4, 5, 6});
      return;
    case 4:
      call.arguments[2] = random.one_of({1, 3});
      call.arguments[3] = random.one_of({-1, 99});
      return;
    case 5:
      call.arguments[4] = random.one_of({2, 4, 8, 9});
      return;
    case 6:
      call.arguments[5] = random.one_of({2, 7});
      return;
    default:
      if (random.percent(50))
        call.arguments[7] = random.one_of({1, 2});
      else
        call.arguments[0] = none;
      return;
  }
}

std::optional<Call> draw_create(const World& world, Random& random) {
  const auto slot = draw_free_handle_slot(world, random);
  if (!slot) return std::nullopt;
  const std::int64_t granules = random.percent(70) ? 1 + random.below(2) : 1 + random.below(8);
  if (world.granules_in_use() + granules > most_memory_granules) return std::nullopt;
  Call call;
  call.arguments = {*slot, granules * granule_bytes, CU_MEM_LOCATION_TYPE_DEVICE, random.below(world.devices), 0, 0, 0,
                    0};
  if (random.percent(12))
    call.arguments[2] = random.one_of({CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA});
  const bool on_host = call[2] != CU_MEM_LOCATION_TYPE_DEVICE;
  if (on_host) call.arguments[3] = 0;
  if (random.percent(45)) call.arguments[4] = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (random.percent(10) && !on_host) call.arguments[5] = CU_MEM_ALLOCATION_COMP_GENERIC;
  if (random.percent(10) && !on_host) call.arguments[6] = 1;
  if (random.percent(wrong_chance)) spoil_creation(call, random);
  return call;
}

Step create(const Call& call, Player& player) {
  CUmemAllocationProp properties = device_memory(static_cast<int>(call[3]), static_cast<int>(call[4]));
  properties.location.type = static_cast<CUmemLocationType>(call[2]);
  properties.allocFlags.compressionType = static_cast<unsigned char>(call[5]);
  properties.allocFlags.gpuDirectRDMACapable = static_cast<unsigned char>(call[6]);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult code = player->cuMemCreate(is_slot(call[0]) ? &handle : nullptr, static_cast<std::size_t>(call[1]),
                                            &properties, static_cast<unsigned long long>(call[7]));
  if (code == CUDA_SUCCESS && is_slot(call[0])) player.handles.at(static_cast<std::size_t>(call[0])) = handle;
  return {code, ""};
}

void created(const Call& call, World& world) {
  if (!is_slot(call[0])) return;  // the driver took a null pointer; nobody has the handle
  const bool exportable = (call[4] & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  const int memory = world.new_memory(call[1] / granule_bytes, where_of(call), exportable);
  world.memories.back().rdma = call[6] != 0;
  world.handles.at(static_cast<std::size_t>(call[0])) = HandleSlot{memory, false};
}

// cuMemRelease: handle

std::optional<Call> draw_release(const World& world, Random& random) {
  if (random.percent(4)) return Call{nullptr, {none}};
  const auto handle = draw_handle(world, random);
  if (!handle) return std::nullopt;
  return Call{nullptr, {*handle}};
}

CUmemGenericAllocationHandle handle_of(std::int64_t slot, const Player& player) {
  return is_slot(slot) ? player.handles.at(static_cast<std::size_t>(slot)) : 0;
}

Step release(const Call& call, Player& player) {
  return {player->cuMemRelease(handle_of(call[0], player)), ""};
}

void released(const Call& call, World& world) {
  if (is_slot(call[0])) world.handles.at(static_cast<std::size_t>(call[0])).reset();
}

// cuMemRetainAllocationHandle: slot space at

std::optional<Call> draw_retain(const World& world, Random& random) {
  const auto slot = draw_free_handle_slot(world, random);
  if (!slot) return std::nullopt;
  const auto mapped = draw_mapped_place(world, random);
  const Place place = mapped && !random.percent(wrong_chance) ? *mapped : draw_place(world, random);
  return Call{nullptr, {random.percent(3) ? none : *slot, place.space, place.at}};
}

Step retain(const Call& call, Player& player) {
  CUmemGenericAllocationHandle handle = 0;
  const CUresult code = player->cuMemRetainAllocationHandle(is_slot(call[0]) ? &handle : nullptr,
                                                            as_pointer(player.address(call[1], call[2])));
  if (code != CUDA_SUCCESS || !is_slot(call[0])) return {code, ""};
  player.handles.at(static_cast<std::size_t>(call[0])) = handle;
  return {code, player.same_handle(handle, call[0])};
}

void retained(const Call& call, World& world) {
  const MappedMemory* const mapping = world.mapping_at({static_cast<int>(call[1]), call[2]});
  if (mapping != nullptr && is_slot(call[0]))
    world.handles.at(static_cast<std::size_t>(call[0])) = HandleSlot{mapping->memory, false};
}

// cuMemExportToShareableHandle: descriptor handle type flags

std::optional<Call> draw_export(const World& world, Random& random) {
  const auto handle = draw_handle(world, random);
  const auto slot = draw_slot(
      world.descriptors, random, [](const auto& each) { return each.has_value(); }, false);
  if (!handle || !slot) return std::nullopt;
  const HandleSlot& given = world.handles.at(static_cast<std::size_t>(*handle)).value();
  const bool exportable = world.memories.at(static_cast<std::size_t>(given.memory)).exportable && !given.imported;
  if (!exportable && !random.percent(wrong_chance)) return std::nullopt;
  Call call{nullptr, {*slot, *handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0}};
  if (!random.percent(wrong_chance)) return call;
  switch (random.below(4)) {
    case 0:
      call.arguments[0] = none;
      break;
    case 1:
      call.arguments[1] = none;
      break;
    case 2:
      call.arguments[2] = random.one_of({0, 2, 4, 8, 9});
      break;
    default:
      call.arguments[3] = 1;
      break;
  }
  return call;
}

Step export_handle(const Call& call, Player& player) {
  int descriptor = -1;
  const CUresult code = player->cuMemExportToShareableHandle(
      is_slot(call[0]) ? &descriptor : nullptr, handle_of(call[1], player),
      static_cast<CUmemAllocationHandleType>(call[2]), static_cast<unsigned long long>(call[3]));
  if (code == CUDA_SUCCESS && is_slot(call[0])) player.descriptors.at(static_cast<std::size_t>(call[0])) = descriptor;
  return {code, ""};
}

void exported(const Call& call, World& world) {
  if (!is_slot(call[0]) || !is_slot(call[1])) return;
  world.descriptors.at(static_cast<std::size_t>(call[0])) =
      world.handles.at(static_cast<std::size_t>(call[1])).value().memory;
}

// [close]: descriptor

std::optional<std::int64_t> draw_descriptor(const World& world, Random& random) {
  return draw_slot(
      world.descriptors, random, [](const auto& each) { return each.has_value(); }, true);
}

std::optional<Call> draw_close(const World& world, Random& random) {
  const auto descriptor = draw_descriptor(world, random);
  if (!descriptor) return std::nullopt;
  return Call{nullptr, {*descriptor}};
}

Step close_descriptor(const Call& call, Player& player) {
  return {::close(player.descriptors.at(static_cast<std::size_t>(call[0]))) == 0 ? CUDA_SUCCESS
                                                                                 : CUDA_ERROR_OPERATING_SYSTEM,
          ""};
}

void closed(const Call& call, World& world) {
  world.descriptors.at(static_cast<std::size_t>(call[0])).reset();
}

// cuMemImportFromShareableHandle: slot descriptor type

std::optional<Call> draw_import(const World& world, Random& random) {
  const auto slot = draw_free_handle_slot(world, random);
  const auto descriptor = draw_descriptor(world, random);
  if (!slot) return std::nullopt;
  Call call{nullptr, {*slot, descriptor.value_or(none), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}};
  if (!descriptor && !random.percent(wrong_chance)) return std::nullopt;
  if (random.percent(6)) call.arguments[0] = none;
  if (random.percent(6)) call.arguments[2] = random.one_of({0, 2, 4, 9});
  return call;
}

Step import_handle(const Call& call, Player& player) {
  CUmemGenericAllocationHandle handle = 0;
  const int descriptor = is_slot(call[1]) ? player.descriptors.at(static_cast<std::size_t>(call[1])) : -1;
  const CUresult code = player->cuMemImportFromShareableHandle(
      is_slot(call[0]) ? &handle : nullptr, as_os_handle(descriptor), static_cast<CUmemAllocationHandleType>(call[2]));
  if (code != CUDA_SUCCESS || !is_slot(call[0])) return {code, ""};
  player.handles.at(static_cast<std::size_t>(call[0])) = handle;
  return {code, player.same_handle(handle, call[0])};
}

void imported(const Call& call, World& world) {
  if (!is_slot(call[0]) || !is_slot(call[1])) return;
  world.handles.at(static_cast<std::size_t>(call[0])) =
      HandleSlot{world.descriptors.at(static_cast<std::size_t>(call[1])).value(), true};
}

// cuMemGetAllocationPropertiesFromHandle: handle out

std::optional<Call> draw_properties(const World& world, Random& random) {
  const auto handle = draw_handle(world, random);
  if (!handle) return std::nullopt;
  return Call{nullptr, {random.percent(5) ? none : *handle, random.percent(95) ? 1 : 0}};
}

Step properties(const Call& call, Player& player) {
  CUmemAllocationProp found{};
  const CUresult code =
      player->cuMemGetAllocationPropertiesFromHandle(call[1] != 0 ? &found : nullptr, handle_of(call[0], player));
  if (code != CUDA_SUCCESS) return {code, ""};
  std::string seen;
  for (const int value :
       {static_cast<int>(found.type), static_cast<int>(found.location.type), found.location.id,
        static_cast<int>(found.requestedHandleTypes), static_cast<int>(found.allocFlags.compressionType),
        static_cast<int>(found.allocFlags.gpuDirectRDMACapable), static_cast<int>(found.allocFlags.usage)})
    seen += value >= 0 && value < 10 ? std::to_string(value) : "?";
  return {code, seen};
}

// cuMemGetAllocationGranularity: location_type id handle_types compression option out

std::optional<Call> draw_granularity(const World& world, Random& random) {
  Call call{nullptr,
            {random.one_of({1, 1, 1, 2, 3}), random.below(world.devices), random.one_of({0, 0, 1}),
             random.one_of({0, 1}), random.one_of({0, 1}), 1}};
  if (!random.percent(wrong_chance)) return call;
  switch (random.below(4)) {
    case 0:
      call.arguments[0] = random.one_of({0, 4, 5});
      break;
    case 1:
      call.arguments[1] = random.one_of({-1, 99});
      break;
    case 2:
      call.arguments[4] = random.one_of({2, -1});
      break;
    default:
      call.arguments[5] = 0;
      break;
  }
  return call;
}

Step granularity(const Call& call, Player& player) {
  CUmemAllocationProp wanted = device_memory(static_cast<int>(call[1]), static_cast<int>(call[2]));
  wanted.location.type = static_cast<CUmemLocationType>(call[0]);
  wanted.allocFlags.compressionType = static_cast<unsigned char>(call[3]);
  std::size_t bytes = 0;
  const CUresult code = player->cuMemGetAllocationGranularity(call[5] != 0 ? &bytes : nullptr, &wanted,
                                                              static_cast<CUmemAllocationGranularity_flags>(call[4]));
  return {code, code == CUDA_SUCCESS ? std::to_string(bytes / mebibyte) : ""};
}

}  // namespace

std::vector<Operation> memory_operations() {
  return {
      {"cuMemCreate", "slot size location_type id handle_types compression rdma flags", 90, Order::any, draw_create,
       create, created},
      {"cuMemRelease", "handle", 32, Order::any, draw_release, release, released},
      {"cuMemRetainAllocationHandle", "slot space at", 22, Order::any, draw_retain, retain, retained},
      {"cuMemExportToShareableHandle", "descriptor handle type flags", 20, Order::any, draw_export, export_handle,
       exported},
      {"[close]", "descriptor", 8, Order::any, draw_close, close_descriptor, closed},
      {"cuMemImportFromShareableHandle", "slot descriptor type", 18, Order::any, draw_import, import_handle, imported},
      {"cuMemGetAllocationPropertiesFromHandle", "handle out", 16, Order::any, draw_properties, properties, nullptr},
      {"cuMemGetAllocationGranularity", "location_type id handle_types compression option out", 8, Order::any,
       draw_granularity, granularity, nullptr},
  };
}

}  // namespace cuvmm::conformance
