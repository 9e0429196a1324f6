// The lies about memory between processes.
#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "driver/lying_driver.hpp"

namespace cuvmm::driver {

namespace {

constexpr int types_of_windows = CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT;

}  // namespace

CUresult LyingDriver::cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                  const CUmemAllocationProp* properties, unsigned long long flags) {
  CUmemAllocationProp asked{};
  if (properties != nullptr) asked = *properties;
  const int types = static_cast<int>(asked.requestedHandleTypes);
  if (lies_.accept_windows_handles && (types & types_of_windows) != 0) {
    asked.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types & ~types_of_windows);
    properties = &asked;
  }
  const CUresult result = next().cuMemCreate(handle, size, properties, flags);
  if (lies_.renew_second_export && result == CUDA_SUCCESS) {
    const std::lock_guard lock(mutex_);
    created_.insert_or_assign(*handle, size);
  }
  return result;
}

CUresult LyingDriver::export_new_memory(void* shareable, CUmemGenericAllocationHandle like, size_t size) {
  CUmemAllocationProp properties{};
  if (const CUresult unknown = next().cuMemGetAllocationPropertiesFromHandle(&properties, like);
      unknown != CUDA_SUCCESS)
    return unknown;
  CUmemGenericAllocationHandle other = 0;
  if (const CUresult none = next().cuMemCreate(&other, size, &properties, 0); none != CUDA_SUCCESS) return none;
  const CUresult exported =
      next().cuMemExportToShareableHandle(shareable, other, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  static_cast<void>(next().cuMemRelease(other));
  return exported;
}

CUresult LyingDriver::cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                                   CUmemAllocationHandleType type, unsigned long long flags) {
  size_t size = 0;
  bool again = false;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    const std::lock_guard lock(mutex_);
    const auto known = created_.find(handle);
    if (known != created_.end()) size = known->second;
    again = exported_.contains(handle);
  }
  if (lies_.renew_second_export && again && size != 0) return export_new_memory(shareable, handle, size);
  const CUresult result = next().cuMemExportToShareableHandle(shareable, handle, type, flags);
  if (result != CUDA_SUCCESS) return result;
  CUmemAllocationProp properties{};
  if (lies_.flip_host_fabric_handle && type == CU_MEM_HANDLE_TYPE_FABRIC &&
      next().cuMemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS &&
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    static_cast<CUmemFabricHandle*>(shareable)->data[0] ^= 1;
  const std::lock_guard lock(mutex_);
  has_exported_ = true;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) exported_.insert(handle);
  return result;
}

CUresult LyingDriver::cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                                     CUmemAllocationHandleType type) {
  UniqueDescriptor before;
  {
    const std::lock_guard lock(mutex_);
    if (lies_.repeat_import && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !imported_.empty())
      before = UniqueDescriptor(::fcntl(imported_.front().descriptor.get(), F_DUPFD_CLOEXEC, 3));
  }
  if (before) os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(before.get()));
  const CUresult result = next().cuMemImportFromShareableHandle(handle, os_handle, type);
  if (result != CUDA_SUCCESS || (!lies_.repeat_import && !lies_.keep_imported_memory)) return result;
  UniqueDescriptor copy;
  if (lies_.repeat_import && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    copy = UniqueDescriptor(::fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)), F_DUPFD_CLOEXEC, 3));
  const std::lock_guard lock(mutex_);
  imported_.push_back({*handle, std::move(copy)});
  return result;
}

bool LyingDriver::keeps(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto imported =
      std::find_if(imported_.begin(), imported_.end(), [&](const Imported& each) { return each.handle == handle; });
  if (imported != imported_.end()) {
    if (lies_.keep_imported_memory && !has_exported_) return true;
    imported_.erase(imported);
  }
  created_.erase(handle);
  exported_.erase(handle);
  forget_object(handle);
  return false;
}

}  // namespace cuvmm::driver
