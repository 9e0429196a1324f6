// Multicast objects: one store reaches every device of a team.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {

using model::VirtualMemory;

CUresult EmulatedDriver::cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* properties,
                                                   CUmulticastGranularity_flags option) {
  return initialised([&] {
    return machine_.with_memory(
        [&](VirtualMemory& memory) { return memory.multicast_granularity(granularity, properties, option); });
  });
}

CUresult EmulatedDriver::cuMulticastCreate(CUmemGenericAllocationHandle* multicast,
                                           const CUmulticastObjectProp* properties) {
  return initialised([&] {
    machine_.collect_closed_exports();
    return machine_.with_memory([&](VirtualMemory& memory) { return memory.create_multicast(multicast, properties); });
  });
}

CUresult EmulatedDriver::cuMulticastAddDevice(CUmemGenericAllocationHandle multicast, CUdevice device) {
  return initialised(
      [&] { return machine_.with_memory([&](VirtualMemory& memory) { return memory.join(multicast, device); }); });
}

CUresult EmulatedDriver::cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                                            unsigned long long flags) {
  return initialised([&] {
    return machine_.bind_multicast({multicast, {}, multicast_offset, size, flags, memory, memory_offset, 0, false});
  });
}

CUresult EmulatedDriver::cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                                             CUdeviceptr pointer, size_t size, unsigned long long flags) {
  return initialised([&] {
    return machine_.bind_multicast({multicast, {}, multicast_offset, size, flags, 0, 0, pointer, true});
  });
}

CUresult EmulatedDriver::cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                               size_t multicast_offset, CUmemGenericAllocationHandle memory,
                                               size_t memory_offset, size_t size, unsigned long long flags) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_form(driver::EntryPoint::cuMulticastBindMem_v2); !refused.ok()) return refused;
    return machine_.bind_multicast({multicast, device, multicast_offset, size, flags, memory, memory_offset, 0, false});
  });
}

CUresult EmulatedDriver::cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                                size_t multicast_offset, CUdeviceptr pointer, size_t size,
                                                unsigned long long flags) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_form(driver::EntryPoint::cuMulticastBindAddr_v2); !refused.ok()) return refused;
    return machine_.bind_multicast({multicast, device, multicast_offset, size, flags, 0, 0, pointer, true});
  });
}

CUresult EmulatedDriver::cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device,
                                           size_t multicast_offset, size_t size) {
  return initialised([&] {
    return machine_.with_memory(
        [&](VirtualMemory& memory) { return memory.unbind(multicast, device, multicast_offset, size); });
  });
}

// Whether the profile's driver has a form that came with a later version of CUDA than the call did.
Answer EmulatedDriver::check_form(driver::EntryPoint entry) const {
  if (has(entry)) return {};
  const int version = driver::info(entry).version;
  return {CUDA_ERROR_NOT_SUPPORTED, Rule::multicast_supported,
          fmt::format("{} came with CUDA {}.{}, and this driver is older: take profile=h200-590", driver::name(entry),
                      version / 1000, version % 1000 / 10)};
}

}  // namespace cuvmm::emulator::api
