// Handles between processes, dma-bufs, and legacy IPC, which virtual memory has not.
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstring>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

constexpr unsigned lazy_peer_access = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which cuIpcOpenMemHandle insists on

// What a legacy IPC handle of an emulated driver holds.
struct IpcContent {
  std::uint64_t mark = 0;
  ::pid_t process = 0;
  CUdeviceptr address = 0;
};

constexpr std::uint64_t ipc_mark = 0x4350'494d'4d56'5543;  // "CUVMMIPC"

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
    if (!machine_.find_heap_allocation(pointer))
      return {CUDA_ERROR_INVALID_VALUE, Rule::ipc_not_for_vmm,
              fmt::format("{:#x} was not allocated by cuMemAlloc", pointer)};
    *handle = CUipcMemHandle{};
    const IpcContent content{ipc_mark, ::getpid(), pointer};
    std::memcpy(handle->reserved, &content, sizeof content);
    return {};
  });
}

CUresult EmulatedDriver::cuIpcOpenMemHandle(CUdeviceptr* device_pointer, CUipcMemHandle handle, unsigned int flags) {
  return with_context([&](const ActiveContext&) -> Answer {
    if (device_pointer == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "pdptr must not be null"};
    if (flags != lazy_peer_access)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}, must be 1", flags)};
    IpcContent content;
    std::memcpy(&content, handle.reserved, sizeof content);
    if (content.mark != ipc_mark)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "the handle does not come from cuIpcGetMemHandle"};
    if (content.process == ::getpid())
      return {CUDA_ERROR_INVALID_CONTEXT, Rule::ipc_other_process, "the handle comes from this process"};
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
