// How much of everything there is.
#include <vector>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

void add_limits_cases(Table& table) {
  table.add(
      "oom.rollback",
      [](Environment& cuda) {
        std::size_t free_before = 0;
        std::size_t free_after = 0;
        std::size_t total = 0;
        cuda.expect("info", cuda->cuMemGetInfo(&free_before, &total));
        const CUmemAllocationProp properties = device_memory();
        std::vector<CUmemGenericAllocationHandle> handles;
        CUmemGenericAllocationHandle handle = 0;
        CUresult result = CUDA_SUCCESS;
        while ((result = cuda->cuMemCreate(&handle, 8 * gibibyte, &properties, 0)) == CUDA_SUCCESS)
          handles.push_back(handle);
        for (const CUmemGenericAllocationHandle each : handles) cuda.expect("release", cuda->cuMemRelease(each));
        cuda.expect("info", cuda->cuMemGetInfo(&free_after, &total));
        return slashes({result, free_after + 64 * mebibyte >= free_before ? "all back" : "lost"});
      },
      needs_alone);
  table.add(
      "many.4096_handles",
      [](Environment& cuda) {
        const CUmemAllocationProp properties = device_memory();
        int count = 0;
        CUresult result = CUDA_SUCCESS;
        CUmemGenericAllocationHandle handle = 0;
        while (count < 4096 && (result = cuda->cuMemCreate(&handle, granule, &properties, 0)) == CUDA_SUCCESS) ++count;
        return slashes({result, count});
      },
      needs_alone);
  table.add("many.reserve_free_5000", [](Environment& cuda) {
    for (int i = 0; i < 5000; ++i)
      if (cuda->cuMemAddressFree(cuda.reserve(granule), granule) != CUDA_SUCCESS) return "fail";
    return "OK";
  });
  table.add("many.1000_reservations_distinct", [](Environment& cuda) {
    CUdeviceptr previous = 0;
    for (int i = 0; i < 1000; ++i) {
      const CUdeviceptr address = cuda.reserve(granule);
      if (address == 0 || address == previous) return "fail";
      previous = address;
    }
    return "OK";
  });
}

}  // namespace cuvmm::conformance
