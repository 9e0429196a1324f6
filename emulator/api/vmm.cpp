// Virtual memory management: the model decides, the machine keeps the bytes.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {

using model::VirtualMemory;

CUresult EmulatedDriver::cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                                       CUmemAllocationGranularity_flags option) {
  return initialised([&] {
    return machine_.with_memory(
        [&](VirtualMemory& memory) { return memory.granularity(granularity, properties, option); });
  });
}

CUresult EmulatedDriver::cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                     const CUmemAllocationProp* properties, unsigned long long flags) {
  return initialised([&] {
    machine_.collect_closed_exports();
    return machine_.with_memory([&](VirtualMemory& memory) { return memory.create(handle, size, properties, flags); });
  });
}

CUresult EmulatedDriver::cuMemRelease(CUmemGenericAllocationHandle handle) {
  return initialised(
      [&] { return machine_.with_memory([&](VirtualMemory& memory) { return memory.release(handle); }); });
}

CUresult EmulatedDriver::cuMemAddressReserve(CUdeviceptr* pointer, size_t size, size_t alignment, CUdeviceptr address,
                                             unsigned long long flags) {
  return initialised([&] {
    return machine_.with_memory(
        [&](VirtualMemory& memory) { return memory.reserve(pointer, size, alignment, address, flags); });
  });
}

CUresult EmulatedDriver::cuMemAddressFree(CUdeviceptr pointer, size_t size) {
  return initialised(
      [&] { return machine_.with_memory([&](VirtualMemory& memory) { return memory.free(pointer, size); }); });
}

CUresult EmulatedDriver::cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                                  unsigned long long flags) {
  return initialised([&] { return machine_.map(pointer, size, offset, handle, flags); });
}

CUresult EmulatedDriver::cuMemUnmap(CUdeviceptr pointer, size_t size) {
  return initialised([&]() -> Answer {
    if (const auto user = engine_.first_unfinished_touching(pointer, size)) {
      Answer allowed = machine_.with_memory([&](VirtualMemory& memory) { return memory.check_unmap(pointer, size); });
      if (!allowed.ok()) return allowed;
      Answer refused = machine_.tolerated(
          Rule::unmap_not_in_use, fmt::format("{:#x} + {} is still used by a {}", pointer, size, user->description));
      if (!refused.ok()) return refused;
    }
    return machine_.with_memory([&](VirtualMemory& memory) { return memory.unmap(pointer, size); });
  });
}

CUresult EmulatedDriver::cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors,
                                        size_t count) {
  return initialised([&] {
    return machine_.with_memory(
        [&](VirtualMemory& memory) { return memory.set_access(pointer, size, descriptors, count); });
  });
}

CUresult EmulatedDriver::cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  return initialised([&]() -> Answer {
    Answer answer =
        machine_.with_memory([&](VirtualMemory& memory) { return memory.get_access(flags, location, pointer); });
    // Memory of cuMemAlloc and of pools has addresses, but no rights of this kind.
    const bool unmapped = answer.code == CUDA_ERROR_INVALID_VALUE && answer.rule == Rule::access_query;
    if (unmapped && (machine_.find_heap_allocation(pointer) || machine_.is_pooled(pointer))) return {};
    return answer;
  });
}

CUresult EmulatedDriver::cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return initialised([&] {
    return machine_.with_memory(
        [&](VirtualMemory& memory) { return memory.retain(handle, reinterpret_cast<std::uintptr_t>(address)); });
  });
}

CUresult EmulatedDriver::cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                                CUmemGenericAllocationHandle handle) {
  return initialised([&] {
    return machine_.with_memory([&](VirtualMemory& memory) { return memory.properties(properties, handle); });
  });
}

}  // namespace cuvmm::emulator::api
