// Memory pools that pass between processes: export and import of pools, and of what was allocated from them.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

using model::StreamOrderedMemory;

Answer wrong_flags(unsigned long long flags) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::flags_zero, fmt::format("flags are {:#x}", flags)};
}

bool is_one_type(CUmemAllocationHandleType type) {
  return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || type == CU_MEM_HANDLE_TYPE_FABRIC;
}

}  // namespace

CUresult EmulatedDriver::cuMemPoolExportToShareableHandle(void* shareable_handle, CUmemoryPool handle,
                                                          CUmemAllocationHandleType type, unsigned long long flags) {
  return initialised([&]() -> Answer {
    MemoryPoolPointer pool;
    if (Answer refused = find_pool(handle, &pool); !refused.ok()) return refused;
    if (shareable_handle == nullptr) return null_output("handle_out");
    if (flags != 0) return wrong_flags(flags);
    const int types = pool->kind().handle_types;
    if (pool->kind().imported)
      return {CUDA_ERROR_INVALID_VALUE, Rule::pool_shared, fmt::format("{} was imported", fmt::ptr(handle))};
    if (!is_one_type(type) || (types & type) == 0)
      return {CUDA_ERROR_INVALID_VALUE, Rule::export_requested,
              fmt::format("type {:#x} of a pool created with handleTypes {:#x}", static_cast<int>(type), types)};
    if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !machine_.has_imex_channel())
      return {CUDA_ERROR_NOT_PERMITTED, Rule::create_fabric_permission,
              "there is no IMEX channel that this process may open"};
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
      return {CUDA_ERROR_NOT_SUPPORTED, Rule::import_type, "pools pass between processes as descriptors alone here"};
    return machine_.export_pool(static_cast<int*>(shareable_handle), *pool);
  });
}

CUresult EmulatedDriver::cuMemPoolImportFromShareableHandle(CUmemoryPool* handle, void* os_handle,
                                                            CUmemAllocationHandleType type, unsigned long long flags) {
  return initialised([&]() -> Answer {
    if (handle == nullptr) return null_output("pool_out");
    if (Answer refused = check_pools_supported(); !refused.ok()) return refused;
    if (flags != 0) return wrong_flags(flags);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return {type == CU_MEM_HANDLE_TYPE_WIN32 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE, Rule::import_type,
              fmt::format("handle type {:#x}", static_cast<int>(type))};
    if (os_handle == nullptr)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "handle must not be null, nor descriptor 0"};
    memory::SharedPool shared;
    const auto descriptor = static_cast<int>(reinterpret_cast<std::uintptr_t>(os_handle));
    if (Answer refused = machine_.import_pool(&shared, descriptor); !refused.ok()) return refused;
    try {
      *handle = add_imported_pool(shared);
    } catch (...) {
      machine_.drop_pool(shared.id);
      throw;
    }
    return {};
  });
}

// A pool that is imported again is the same one, and is destroyed as often.
CUmemoryPool EmulatedDriver::add_imported_pool(const memory::SharedPool& shared) {
  const std::lock_guard lock(pools_of_locations_mutex_);
  const auto [entry, added] = imported_pools_.try_emplace(shared.id);
  ImportedPool& imported = entry->second;
  if (!added) {
    machine_.drop_pool(shared.id);  // it is had once
    ++imported.times;
    return imported.handle;
  }
  const PoolLocation location{CU_MEM_ALLOCATION_TYPE_PINNED,
                              shared.place.is_host() ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE,
                              shared.place.device};
  model::PoolKind kind{shared.place};
  kind.imported = true;
  try {
    imported = {add_created_pool(location, kind), 1};
  } catch (...) {
    imported_pools_.erase(entry);
    throw;
  }
  machine_.with_pools([&](StreamOrderedMemory&) { pools_.find(imported.handle)->shared_id = shared.id; });
  return imported.handle;
}

// What is to be destroyed was imported: whether that was the last time; refused while something is imported into it.
Answer EmulatedDriver::forget_import(const model::MemoryPool& pool, bool* last) {
  const bool in_use = machine_.with_pools([&](StreamOrderedMemory&) { return pool.allocations != 0; });
  if (in_use) return {CUDA_ERROR_INVALID_VALUE, Rule::pool_shared, "what was imported into the pool was not freed"};
  const auto found = imported_pools_.find(pool.shared_id);
  *last = --found->second.times == 0;
  if (*last) imported_pools_.erase(found);
  return {};
}

Answer EmulatedDriver::check_not_imported(const model::MemoryPool& pool) {
  if (!pool.kind().imported) return {};
  return {CUDA_ERROR_INVALID_VALUE, Rule::pool_shared, "the pool was imported"};
}

CUresult EmulatedDriver::cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
  return initialised([&]() -> Answer {
    if (data == nullptr) return null_output("shareData_out");
    return machine_.export_pool_pointer(data, pointer);
  });
}

CUresult EmulatedDriver::cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool handle,
                                                CUmemPoolPtrExportData* data) {
  return initialised([&]() -> Answer {
    if (pointer == nullptr || data == nullptr) return null_output("ptr_out and shareData");
    MemoryPoolPointer pool;
    if (Answer refused = find_pool(handle, &pool); !refused.ok()) return refused;
    if (!pool->kind().imported)
      return {CUDA_ERROR_INVALID_VALUE, Rule::pool_shared, fmt::format("{} was not imported", fmt::ptr(handle))};
    return machine_.import_pool_pointer(pointer, pool, *data);
  });
}

}  // namespace cuvmm::emulator::api
