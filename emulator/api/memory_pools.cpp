// Memory pools: what is asked of the pools themselves.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

using model::Accessor;
using model::MemoryPool;
using model::Place;
using model::StreamOrderedMemory;

Answer refused_properties(std::string what) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::pool_properties, std::move(what)};
}

Answer refused_attribute(CUmemPool_attribute attribute) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::pool_attribute, fmt::format("attribute {}", static_cast<int>(attribute))};
}

// Some calls take a device that there is not for a wrong argument of another kind.
Answer as_wrong_value(Answer refused) {
  if (refused.code == CUDA_ERROR_INVALID_DEVICE) refused.code = CUDA_ERROR_INVALID_VALUE;
  return refused;
}

template <class Value>
Value read(const void* value) {
  Value read{};
  std::memcpy(&read, value, sizeof read);
  return read;
}

template <class Value>
Answer give(void* value, Value given) {
  std::memcpy(value, &given, sizeof given);
  return {};
}

Answer get_attribute(const MemoryPool& pool, CUmemPool_attribute attribute, void* value) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return give(value, pool.follow_event_dependencies ? 1 : 0);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return give(value, pool.allow_opportunistic ? 1 : 0);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return give(value, pool.allow_internal_dependencies ? 1 : 0);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return give(value, pool.release_threshold);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return give(value, pool.reserved().current());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return give(value, pool.reserved().high());
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return give(value, pool.used.current());
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return give(value, pool.used.high());
  }
  return refused_attribute(attribute);
}

Answer forget_high(model::Watermark& mark, CUmemPool_attribute attribute, const void* value) {
  if (read<std::uint64_t>(value) != 0) return refused_attribute(attribute);
  mark.forget();
  return {};
}

Answer set_attribute(MemoryPool& pool, CUmemPool_attribute attribute, const void* value) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      pool.follow_event_dependencies = read<int>(value) != 0;
      return {};
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      pool.allow_opportunistic = read<int>(value) != 0;
      return {};
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool.allow_internal_dependencies = read<int>(value) != 0;
      return {};
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool.release_threshold = read<std::uint64_t>(value);
      return {};
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return forget_high(pool.reserved(), attribute, value);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return forget_high(pool.used, attribute, value);
    default:
      return refused_attribute(attribute);
  }
}

// The driver takes a maximum of 2^44 bytes, far more than there are, and refuses one of 2^46.
constexpr std::uint64_t most_pool_bytes = std::uint64_t{1} << 45;

Answer too_large(std::uint64_t most) {
  return {CUDA_ERROR_OUT_OF_MEMORY, Rule::pool_capacity, fmt::format("maxSize is {}", most)};
}

Accessor accessor_of(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? Accessor::device(location.id) : Accessor::host();
}

bool on_host(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

// A device or the host has all rights to a pool's memory, or none; its owner has all.
Answer check_pool_rights(CUmemAccess_flags flags, Accessor of, Accessor owner) {
  if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return {};
  if (flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return {CUDA_ERROR_NOT_SUPPORTED, Rule::pool_access, "flags are READ"};
  if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
    return {CUDA_ERROR_INVALID_VALUE, Rule::pool_access, fmt::format("flags are {}", static_cast<int>(flags))};
  if (of.bit() != owner.bit()) return {};
  return {owner.is_host() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_DEVICE, Rule::pool_access,
          "flags are NONE for the pool's own location"};
}

}  // namespace

Answer EmulatedDriver::check_pools_supported() const {
  if (machine_.configuration().profile.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0) return {};
  return {CUDA_ERROR_NOT_SUPPORTED, Rule::pool_properties, "the device has no memory pools"};
}

Answer EmulatedDriver::find_pool(CUmemoryPool handle, MemoryPoolPointer* pool) {
  *pool = pools_.find(handle);
  if (*pool != nullptr) return {};
  return {CUDA_ERROR_INVALID_VALUE, Rule::pool_live, fmt::format("{} is no memory pool", fmt::ptr(handle))};
}

EmulatedDriver::PoolLocation EmulatedDriver::PoolLocation::of(CUmemAllocationType type, const CUmemLocation& location) {
  const bool numbered = location.type == CU_MEM_LOCATION_TYPE_DEVICE || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  return {type, location.type, numbered ? location.id : 0};
}

// Where a pool's memory may be.
Answer EmulatedDriver::check_pool_location(CUmemAllocationType type, const CUmemLocation& location) const {
  const Configuration& configuration = machine_.configuration();
  const auto supported = [&](CUdevice_attribute attribute) -> Answer {
    if (configuration.profile.attribute(attribute) != 0) return {};
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::pool_properties, "this machine has no pools of such memory"};
  };
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return check_device(location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
      return supported(CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED);
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (location.id < 0 || location.id >= configuration.profile.host_numa_nodes)
        return refused_properties(
            fmt::format("host NUMA node {} of {}", location.id, configuration.profile.host_numa_nodes));
      return supported(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED);
    case CU_MEM_LOCATION_TYPE_INVALID:
      if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return {};  // which need not prefer any
      [[fallthrough]];
    default:
      return refused_properties(fmt::format("location type is {}", static_cast<int>(location.type)));
  }
}

// Which handles a pool can be shared by. Unlike cuMemCreate, creation asks nobody whether fabric handles may be made.
Answer EmulatedDriver::check_pool_handle_types(const CUmemPoolProps& properties) {
  const auto types = static_cast<unsigned>(properties.handleTypes);
  constexpr unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  if ((types & ~known) == 0 && (types == 0 || properties.location.type != CU_MEM_LOCATION_TYPE_HOST)) return {};
  return refused_properties(fmt::format("handleTypes is {:#x}", types));
}

Answer EmulatedDriver::check_pool_properties(const CUmemPoolProps& properties) const {
  const bool managed = properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (managed && machine_.configuration().profile.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) == 0)
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::pool_properties, "the device has no managed memory"};
  if (!managed && properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return refused_properties(fmt::format("allocType is {}", static_cast<int>(properties.allocType)));
  if (Answer refused = check_pool_location(properties.allocType, properties.location); !refused.ok()) return refused;
  if (std::any_of(std::begin(properties.reserved), std::end(properties.reserved), [](auto byte) { return byte != 0; }))
    return refused_properties("reserved is not zero");
  if (managed && properties.handleTypes != 0)
    return refused_properties(
        fmt::format("handleTypes is {:#x}: managed pools have none", static_cast<unsigned>(properties.handleTypes)));
  return check_pool_handle_types(properties);
}

// A pool that is to be made: a device that there is not is a wrong property here.
Answer EmulatedDriver::check_new_pool(const CUmemPoolProps& properties) {
  Answer refused = check_pool_properties(properties);
  if (refused.code == CUDA_ERROR_INVALID_DEVICE) return refused_properties(std::move(refused.detail));
  if (!refused.ok()) return refused;
  if (properties.maxSize == 0) return {};
  if (properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
    return refused_properties(fmt::format("maxSize is {}: managed pools have none", properties.maxSize));
  return properties.maxSize <= most_pool_bytes ? Answer{} : too_large(properties.maxSize);
}

// Managed memory is the process's own, wherever it is preferred.
Place EmulatedDriver::place_of_pool(const PoolLocation& location) {
  const bool on_device =
      location.where == CU_MEM_LOCATION_TYPE_DEVICE && location.type != CU_MEM_ALLOCATION_TYPE_MANAGED;
  return on_device ? Place::on_device(location.id) : Place::on_host();
}

model::PoolKind EmulatedDriver::kind_of_pool(const PoolLocation& location) {
  model::PoolKind kind{place_of_pool(location)};
  kind.managed = location.type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  kind.device = location.where == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : 0;
  return kind;
}

CUmemoryPool EmulatedDriver::add_pool(const model::PoolKind& kind) {
  const MemoryPoolPointer pool =
      machine_.with_pools([&](StreamOrderedMemory& memory) { return memory.create_pool(kind); });
  CUmemoryPool handle = nullptr;
  try {
    handle = pools_.add(pool);
  } catch (...) {
    machine_.with_pools([&](StreamOrderedMemory& memory) { memory.destroy_pool(pool); });
    throw;
  }
  machine_.with_pools([&](StreamOrderedMemory&) { pool->handle = reinterpret_cast<std::uintptr_t>(handle); });
  return handle;
}

// One that can be destroyed. The caller has locked pools_of_locations_mutex_.
CUmemoryPool EmulatedDriver::add_created_pool(const PoolLocation& location, const model::PoolKind& kind) {
  std::map<CUmemoryPool, PoolLocation> created;  // what needs memory comes first
  created[nullptr] = location;
  const CUmemoryPool handle = add_pool(kind);
  auto node = created.extract(created.begin());
  node.key() = handle;
  created_pools_.insert(std::move(node));
  return handle;
}

// HOST and each host NUMA node have pools of their own, though their memory is one.
EmulatedDriver::PoolsOfLocation& EmulatedDriver::pools_of_locked(const PoolLocation& location) {
  PoolsOfLocation& pools = pools_of_locations_[location];
  if (pools.standard == nullptr) {
    model::PoolKind kind = kind_of_pool(location);
    kind.standard = true;
    pools.current = pools.standard = add_pool(kind);
  }
  return pools;
}

// The pool that allocations at a location come from; `standard`: the one that there always is.
Answer EmulatedDriver::pool_of_location(CUmemoryPool* pool, const CUmemLocation* location, CUmemAllocationType type,
                                        bool standard) {
  if (pool == nullptr || location == nullptr) return null_output("pool and location");
  if (Answer refused = check_pools_supported(); !refused.ok()) return refused;
  CUmemPoolProps properties{};
  properties.allocType = type;
  properties.location = *location;
  if (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::pool_properties, "the current host NUMA node is no pool's location"};
  if (Answer refused = check_pool_properties(properties); !refused.ok()) return refused;
  const std::lock_guard lock(pools_of_locations_mutex_);
  const PoolsOfLocation& pools = pools_of_locked(PoolLocation::of(type, *location));
  *pool = standard ? pools.standard : pools.current;
  return {};
}

Answer EmulatedDriver::set_pool_of_location(const PoolLocation& location, CUmemoryPool handle) {
  MemoryPoolPointer pool;
  if (Answer refused = find_pool(handle, &pool); !refused.ok()) return refused;
  const std::lock_guard lock(pools_of_locations_mutex_);
  const auto known = created_pools_.find(handle);
  const bool standard = pools_of_locked(location).standard == handle;
  if (!standard && (known == created_pools_.end() || known->second != location))
    return refused_properties("the pool is of another location");
  if (pool->kind().imported) return refused_properties("nothing can be allocated from a pool that was imported");
  pools_of_locked(location).current = handle;
  return {};
}

CUresult EmulatedDriver::cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
  return initialised([&] { return pool_of_location(pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED, true); });
}

CUresult EmulatedDriver::cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
  return initialised(
      [&] { return as_wrong_value(pool_of_location(pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED, false)); });
}

CUresult EmulatedDriver::cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_device(device); !refused.ok()) return as_wrong_value(std::move(refused));
    return set_pool_of_location({CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, device}, pool);
  });
}

CUresult EmulatedDriver::cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return initialised([&] { return pool_of_location(pool, location, type, true); });
}

CUresult EmulatedDriver::cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return initialised([&] { return pool_of_location(pool, location, type, false); });
}

CUresult EmulatedDriver::cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return initialised([&]() -> Answer {
    CUmemoryPool current = nullptr;
    if (location != nullptr && location->type > CU_MEM_LOCATION_TYPE_HOST_NUMA)
      return {CUDA_ERROR_NOT_SUPPORTED, Rule::pool_properties,
              fmt::format("location type is {}", static_cast<int>(location->type))};
    Answer refused = pool_of_location(&current, location, type, false);
    if (location == nullptr || !refused.ok()) return as_wrong_value(std::move(refused));
    return set_pool_of_location(PoolLocation::of(type, *location), pool);
  });
}

CUresult EmulatedDriver::cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return initialised([&]() -> Answer {
    if (pool == nullptr || properties == nullptr) return null_output("pool and poolProps");
    if (Answer refused = check_pools_supported(); !refused.ok()) return refused;
    if (Answer refused = check_new_pool(*properties); !refused.ok()) return refused;
    const std::lock_guard lock(pools_of_locations_mutex_);
    const auto location = PoolLocation::of(properties->allocType, properties->location);
    model::PoolKind kind = kind_of_pool(location);
    kind.max_bytes = properties->maxSize;
    kind.handle_types = properties->handleTypes;
    *pool = add_created_pool(location, kind);
    return {};
  });
}

CUresult EmulatedDriver::cuMemPoolDestroy(CUmemoryPool handle) {
  return initialised([&]() -> Answer {
    const std::lock_guard lock(pools_of_locations_mutex_);
    const auto known = created_pools_.find(handle);
    if (known == created_pools_.end())
      return {CUDA_ERROR_INVALID_VALUE, Rule::pool_live,
              fmt::format("{} is no pool that was created", fmt::ptr(handle))};
    bool last = true;
    if (const MemoryPoolPointer pool = pools_.find(handle); pool->kind().imported)
      if (Answer refused = forget_import(*pool, &last); !refused.ok()) return refused;
    if (!last) return {};
    created_pools_.erase(known);
    for (auto& [location, pools] : pools_of_locations_)
      if (pools.current == handle) pools.current = pools.standard;
    const MemoryPoolPointer pool = pools_.take(handle);
    machine_.with_pools([&](StreamOrderedMemory& memory) { memory.destroy_pool(pool); });
    return {};
  });
}

CUresult EmulatedDriver::cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes) {
  return initialised([&]() -> Answer {
    MemoryPoolPointer pool;
    if (Answer refused = find_pool(handle, &pool); !refused.ok()) return refused;
    if (Answer refused = check_not_imported(*pool); !refused.ok()) return refused;
    machine_.with_pools([&](StreamOrderedMemory&) { pool->trim(bytes); });
    return {};
  });
}

CUresult EmulatedDriver::cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return initialised([&]() -> Answer {
    MemoryPoolPointer pool;
    if (Answer refused = find_pool(handle, &pool); !refused.ok()) return refused;
    if (Answer refused = check_not_imported(*pool); !refused.ok()) return refused;
    if (value == nullptr) return null_output("value");
    return machine_.with_pools([&](StreamOrderedMemory&) { return set_attribute(*pool, attribute, value); });
  });
}

CUresult EmulatedDriver::cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return initialised([&]() -> Answer {
    MemoryPoolPointer pool;
    if (Answer refused = find_pool(handle, &pool); !refused.ok()) return refused;
    if (Answer refused = check_not_imported(*pool); !refused.ok()) return refused;
    if (value == nullptr) return null_output("value");
    return machine_.with_pools([&](StreamOrderedMemory&) { return get_attribute(*pool, attribute, value); });
  });
}

// Whether somebody can be given access to memory of a pool at that place.
Answer EmulatedDriver::check_pool_access(Place place, const CUmemLocation& location) const {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    if (on_host(location) && place.is_host()) return {};
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::pool_access,
            fmt::format("location type is {}: only devices can be let into memory of a device",
                        static_cast<int>(location.type))};
  }
  if (Answer refused = check_device(location.id); !refused.ok()) return refused;
  const bool reachable = place.is_host() || location.id == place.device ||
                         machine_.configuration().can_access_peer(location.id, place.device);
  if (reachable) return {};
  return {CUDA_ERROR_INVALID_DEVICE, Rule::access_peer,
          fmt::format("device {} cannot reach device {}", location.id, place.device)};
}

CUresult EmulatedDriver::cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptors, size_t count) {
  return initialised([&]() -> Answer {
    MemoryPoolPointer pool;
    if (Answer refused = find_pool(handle, &pool); !refused.ok()) return refused;
    if (descriptors == nullptr) return null_output("map");
    const Place place = pool->place();
    const Accessor owner = place.is_host() ? Accessor::host() : Accessor::device(place.device);
    for (std::size_t index = 0; index < count; ++index) {
      const CUmemAccessDesc& descriptor = descriptors[index];
      if (Answer refused = check_pool_access(place, descriptor.location); !refused.ok()) return refused;
      if (Answer refused = check_pool_rights(descriptor.flags, accessor_of(descriptor.location), owner); !refused.ok())
        return refused;
    }
    machine_.with_pools([&](StreamOrderedMemory&) {
      for (std::size_t index = 0; index < count; ++index)
        pool->rights.set(accessor_of(descriptors[index].location), descriptors[index].flags);
    });
    return {};
  });
}

CUresult EmulatedDriver::cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  return initialised([&]() -> Answer {
    MemoryPoolPointer pool;
    if (Answer refused = find_pool(handle, &pool); !refused.ok()) return refused;
    if (flags == nullptr || location == nullptr) return null_output("flags and location");
    const bool device = location->type == CU_MEM_LOCATION_TYPE_DEVICE && check_device(location->id).ok();
    if (!device && !on_host(*location))
      return {CUDA_ERROR_INVALID_VALUE, Rule::pool_access,
              fmt::format("location type is {}, id {}", static_cast<int>(location->type), location->id)};
    *flags = pool->kind().managed  // which everybody may touch, and of which nobody is told to have rights
                 ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                 : machine_.with_pools([&](StreamOrderedMemory&) { return pool->rights.get(accessor_of(*location)); });
    return {};
  });
}

}  // namespace cuvmm::emulator::api
