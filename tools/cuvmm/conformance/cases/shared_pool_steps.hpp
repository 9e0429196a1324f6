// Steps of cases about memory pools that are passed on.
#pragma once

#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

[[nodiscard]] CUmemoryPool shareable_pool(Environment& cuda, int device = 0, std::size_t max_size = 0);
// Of host NUMA node 0.
[[nodiscard]] CUmemoryPool shareable_host_pool(Environment& cuda);
[[nodiscard]] int exported_pool(Environment& cuda, CUmemoryPool pool);
[[nodiscard]] CUmemoryPool imported_pool(Environment& cuda, int descriptor);
[[nodiscard]] CUmemPoolPtrExportData exported_pointer(Environment& cuda, CUdeviceptr address);

// Memory of a pool that was exported, with the word 66 at its beginning and 67 at its end.
struct SharedAllocation {
  CUmemoryPool pool = nullptr;
  int descriptor = -1;
  CUstream stream = nullptr;
  CUdeviceptr address = 0;
};
[[nodiscard]] SharedAllocation shared_allocation(Environment& cuda, std::size_t bytes = 4096);
[[nodiscard]] SharedAllocation shared_allocation(Environment& cuda, CUmemoryPool pool, std::size_t bytes);
// The same of a pool of the host's, where the process writes itself.
[[nodiscard]] SharedAllocation shared_host_allocation(Environment& cuda, std::size_t bytes = 4096);

// "OK/4096", "OK/begin" for the pointer itself, "OK/pool" for that pool, "OK/number" for what is another each time.
[[nodiscard]] std::string told_of_pointer(Environment& cuda, int attribute, CUdeviceptr pointer, CUmemoryPool pool);

}  // namespace cuvmm::conformance
