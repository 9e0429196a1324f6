// Handles between processes, dma-bufs, and legacy IPC, which virtual memory has not.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which cuIpcOpenMemHandle insists on; to all other bits it is blind.
constexpr unsigned lazy_peer_access = 1;

}  // namespace

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
  return initialised_else(CUDA_ERROR_INVALID_VALUE, [&]() -> Answer {
    if (size == 0 || flags > CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("size is {}, flags are {:#x}", size, flags)};
    ActiveContext context;
    if (Answer refused = current_context(&context); !refused.ok()) return refused;
    return machine_.dma_buf(handle, pointer, size, handle_type, flags);
  });
}

CUresult EmulatedDriver::cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  return initialised_else(CUDA_ERROR_INVALID_VALUE, [&]() -> Answer {
    ActiveContext context;
    if (Answer refused = current_context(&context); !refused.ok()) return refused;
    if (handle == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "pHandle must not be null"};
    return machine_.export_ipc(handle, pointer);
  });
}

CUresult EmulatedDriver::cuIpcOpenMemHandle(CUdeviceptr* device_pointer, CUipcMemHandle handle, unsigned int flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (device_pointer == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "pdptr must not be null"};
    if ((flags & lazy_peer_access) == 0)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}, must be 1", flags)};
    return give_owner(context, machine_.open_ipc(device_pointer, handle, context.device, context.id));
  });
}

CUresult EmulatedDriver::cuIpcCloseMemHandle(CUdeviceptr pointer) {
  return with_context([&](const ActiveContext&) -> Answer {
    if (const auto opened = machine_.find_heap_allocation(pointer); opened && opened->opened > 0)
      if (Answer finished = drain_users(opened->owner, opened->address, opened->bytes); !finished.ok()) return finished;
    return machine_.close_ipc(pointer);
  });
}

}  // namespace cuvmm::emulator::api
