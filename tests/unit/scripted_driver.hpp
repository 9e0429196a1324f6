// A fake driver whose calls hand out handles and addresses, which is all that the owners need.
#pragma once

#include <memory>

#include "cuvmm/driver.hpp"
#include "cuvmm/units.hpp"
#include "fake_driver.hpp"

namespace cuvmm::test {

inline std::shared_ptr<FakeDriver> scripted_driver() {
  auto fake = std::make_shared<FakeDriver>();
  fake->on_cuMemGetAllocationGranularity = [](size_t* granularity, const CUmemAllocationProp*,
                                              CUmemAllocationGranularity_flags option) {
    *granularity = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ? 64_KiB : 2_MiB;
    return CUDA_SUCCESS;
  };
  fake->on_cuMemCreate = [next = 1ULL](CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                                       unsigned long long) mutable {
    *handle = next++;
    return CUDA_SUCCESS;
  };
  fake->on_cuMemAddressReserve = [](CUdeviceptr* pointer, size_t, size_t, CUdeviceptr, unsigned long long) {
    *pointer = 0x10000000;
    return CUDA_SUCCESS;
  };
  fake->on_cuDeviceGetCount = [](int* count) {
    *count = 2;
    return CUDA_SUCCESS;
  };
  fake->on_cuDeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  return fake;
}

}  // namespace cuvmm::test
