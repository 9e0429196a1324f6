// Handles between processes, dma-bufs, and legacy IPC, which virtual memory has not.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {

CUresult EmulatedDriver::cuMemExportToShareableHandle(void* shareable_handle, CUmemGenericAllocationHandle handle,
                                                      CUmemAllocationHandleType handle_type, unsigned long long flags) {
  return initialised([&] { return machine_.export_handle(shareable_handle, handle, handle_type, flags); });
}

CUresult EmulatedDriver::cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                                        CUmemAllocationHandleType handle_type) {
  return initialised([&] { return machine_.import_handle(handle, os_handle, handle_type); });
}

CUresult EmulatedDriver::cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, size_t size,
                                                       CUmemRangeHandleType handle_type, unsigned long long flags) {
  return initialised([&] { return machine_.dma_buf(handle, pointer, size, handle_type, flags); });
}

CUresult EmulatedDriver::cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  return with_context([&](const ActiveContext&) -> Answer {
    if (handle == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "pHandle must not be null"};
    if (!machine_.find_heap_allocation(pointer))
      return {CUDA_ERROR_INVALID_VALUE, Rule::ipc_not_for_vmm,
              fmt::format("{:#x} was not allocated by cuMemAlloc", pointer)};
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::ipc_emulated,
            "the emulated driver shares memory by exported handles alone"};
  });
}

CUresult EmulatedDriver::cuIpcOpenMemHandle(CUdeviceptr* device_pointer, CUipcMemHandle, unsigned int) {
  return with_context([&](const ActiveContext&) -> Answer {
    if (device_pointer == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "pdptr must not be null"};
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::ipc_emulated,
            "the emulated driver shares memory by exported handles alone"};
  });
}

CUresult EmulatedDriver::cuIpcCloseMemHandle(CUdeviceptr pointer) {
  return with_context([&](const ActiveContext&) -> Answer {
    return {CUDA_ERROR_INVALID_VALUE, Rule::ipc_not_for_vmm,
            fmt::format("{:#x} was not opened from a handle", pointer)};
  });
}

}  // namespace cuvmm::emulator::api
