// Virtual memory management by several threads of a process, none of which but the first has a context.
#include <atomic>
#include <thread>
#include <vector>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

constexpr int thread_count = 8;

template <class Work>
void in_threads(int count, Work work) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  for (int index = 0; index < count; ++index) threads.emplace_back(work, index);
  for (std::thread& each : threads) each.join();
}

// The first failure of any of them.
class FirstFailure {
 public:
  bool note(CUresult result) {
    CUresult none = CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) first_.compare_exchange_strong(none, result);
    return result == CUDA_SUCCESS;
  }
  [[nodiscard]] CUresult get() const { return first_; }

 private:
  std::atomic<CUresult> first_{CUDA_SUCCESS};
};

bool live_once(driver::Interface& driver, FirstFailure& failure) {
  const CUmemAllocationProp properties = device_memory();
  const CUmemAccessDesc access = access_of(0);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  return failure.note(driver.cuMemCreate(&handle, granule, &properties, 0)) &&
         failure.note(driver.cuMemAddressReserve(&address, granule, 0, 0, 0)) &&
         failure.note(driver.cuMemMap(address, granule, 0, handle, 0)) &&
         failure.note(driver.cuMemSetAccess(address, granule, &access, 1)) &&
         failure.note(driver.cuMemUnmap(address, granule)) && failure.note(driver.cuMemRelease(handle)) &&
         failure.note(driver.cuMemAddressFree(address, granule));
}

}  // namespace

void add_thread_cases(Table& table) {
  table.add("thread.each_has_memory_of_its_own", [](Environment& cuda) {
    FirstFailure failure;
    in_threads(thread_count, [&](int) {
      for (int round = 0; round < 20 && live_once(cuda.driver(), failure); ++round) {
      }
    });
    return failure.get();
  });
  table.add("thread.one_ends_what_another_began", [](Environment& cuda) {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CUresult unmapped = CUDA_ERROR_UNKNOWN, released = CUDA_ERROR_UNKNOWN, freed = CUDA_ERROR_UNKNOWN;
    in_threads(1, [&](int) {
      const CUmemAllocationProp properties = device_memory();
      static_cast<void>(cuda->cuMemCreate(&handle, granule, &properties, 0));
      static_cast<void>(cuda->cuMemAddressReserve(&address, granule, 0, 0, 0));
      static_cast<void>(cuda->cuMemMap(address, granule, 0, handle, 0));
    });
    cuda.grant(address, granule);
    const std::string granted = cuda.access(address);
    in_threads(1, [&](int) {
      unmapped = cuda->cuMemUnmap(address, granule);
      released = cuda->cuMemRelease(handle);
      freed = cuda->cuMemAddressFree(address, granule);
    });
    return spaces({granted, unmapped, released, freed});
  });
}

}  // namespace cuvmm::conformance
