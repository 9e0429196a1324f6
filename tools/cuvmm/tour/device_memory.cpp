#include "tour/device_memory.hpp"

#include <fmt/core.h>

#include "driver/call.hpp"

namespace cuvmm::tour {

std::size_t granularity(driver::Interface& driver, const abi::CUmemAllocationProp& properties,
                        abi::CUmemAllocationGranularity_flags option) {
  std::size_t bytes = 0;
  driver::call<driver::EntryPoint::cuMemGetAllocationGranularity>(driver, &bytes, &properties, option);
  return bytes;
}

void require_virtual_memory_and_kernels(const Gpu& gpu) {
  if (gpu.attribute(abi::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
    throw Unavailable(fmt::format("device {} has no virtual memory management", gpu.ordinal()));
  }
  gpu.require_kernels();
}

}  // namespace cuvmm::tour
