// Properties of device memory, as the driver wants them.
#pragma once

#include "driver/abi.hpp"
#include "tour/gpu.hpp"

namespace cuvmm::tour {

// Pinned memory of that device, with no handle type.
[[nodiscard]] inline abi::CUmemAllocationProp device_memory(const Gpu& gpu) {
  abi::CUmemAllocationProp properties{};
  properties.type = abi::CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {abi::CU_MEM_LOCATION_TYPE_DEVICE, gpu.device()};
  return properties;
}

// Those rights for that device.
[[nodiscard]] inline abi::CUmemAccessDesc rights_of(const Gpu& gpu, abi::CUmemAccess_flags flags) {
  return {{abi::CU_MEM_LOCATION_TYPE_DEVICE, gpu.device()}, flags};
}

// The driver's unit of physical memory there, in bytes. Throws cuvmm::Error.
[[nodiscard]] std::size_t granularity(driver::Interface& driver, const abi::CUmemAllocationProp& properties,
                                      abi::CUmemAllocationGranularity_flags option);

// Throws Unavailable if the device has no virtual memory management, or cannot run this build's kernels.
void require_virtual_memory_and_kernels(const Gpu& gpu);

}  // namespace cuvmm::tour
