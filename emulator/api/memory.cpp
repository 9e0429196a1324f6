// Memory of cuMemAlloc, page-locked host memory, and how much there is.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {

CUresult EmulatedDriver::cuMemGetInfo(size_t* free, size_t* total) {
  return with_context([&](const ActiveContext& context) -> Answer {
    machine_.memory_info(context.device, free, total);
    return {};
  });
}

CUresult EmulatedDriver::cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    if (Answer refused = machine_.allocate(pointer, bytes, context.device, context.id); !refused.ok()) return refused;
    return check_still_alive(context);
  });
}

CUresult EmulatedDriver::cuMemFree(CUdeviceptr pointer) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (pointer == 0) return {};
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    // cuMemFree waits for the device's work, which is why code that frees under a running kernel gets away with it.
    if (const auto allocation = machine_.find_heap_allocation(pointer); allocation && allocation->address == pointer)
      if (Answer finished = executed(engine_.synchronize_context(context.execution)); !finished.ok()) return finished;
    return machine_.free(pointer);
  });
}

CUresult EmulatedDriver::cuMemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  return with_context([&](const ActiveContext&) -> Answer {
    const auto found = machine_.address_range(pointer);
    if (!found)
      return {CUDA_ERROR_NOT_FOUND, Rule::argument_valid,
              fmt::format("nothing is allocated or mapped at {:#x}", pointer)};
    if (base != nullptr) *base = found->address;
    if (size != nullptr) *size = found->bytes;
    return {};
  });
}

CUresult EmulatedDriver::cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    if (Answer refused = machine_.allocate_host(pointer, bytes, flags, context.id); !refused.ok()) return refused;
    return check_still_alive(context);
  });
}

CUresult EmulatedDriver::cuMemAllocHost(void** pointer, size_t bytes) {
  return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult EmulatedDriver::cuMemFreeHost(void* pointer) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (Answer finished = executed(engine_.synchronize_context(context.execution)); !finished.ok()) return finished;
    return machine_.free_host(pointer);
  });
}

CUresult EmulatedDriver::cuMemHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    if (Answer refused = machine_.register_host(pointer, bytes, flags, context.id); !refused.ok()) return refused;
    return check_still_alive(context);
  });
}

CUresult EmulatedDriver::cuMemHostUnregister(void* pointer) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (Answer finished = executed(engine_.synchronize_context(context.execution)); !finished.ok()) return finished;
    return machine_.unregister_host(pointer);
  });
}

CUresult EmulatedDriver::cuMemHostGetDevicePointer(CUdeviceptr* device_pointer, void* pointer, unsigned int flags) {
  return with_context([&](const ActiveContext&) -> Answer {
    if (device_pointer == nullptr || flags != 0)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
              fmt::format("pdptr must not be null, flags must be 0 (are {:#x})", flags)};
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (!machine_.find_host_range(address))
      return {CUDA_ERROR_INVALID_VALUE, Rule::host_registration, fmt::format("{} is not page-locked", pointer)};
    *device_pointer = address;
    return {};
  });
}

CUresult EmulatedDriver::cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  return with_context([&](const ActiveContext&) -> Answer {
    if (flags == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "pFlags must not be null"};
    const auto range = machine_.find_host_range(reinterpret_cast<std::uintptr_t>(pointer));
    if (!range)
      return {CUDA_ERROR_INVALID_VALUE, Rule::host_registration, fmt::format("{} is not page-locked", pointer)};
    // With unified addresses all page-locked memory is portable and mapped for devices.
    *flags = range->flags | CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    return {};
  });
}

}  // namespace cuvmm::emulator::api
