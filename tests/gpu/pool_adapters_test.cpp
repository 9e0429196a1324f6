// The pool's adapters on a GPU: memory of the host that both reach, memory of no stream's order, and PyTorch's
// functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cuvmm/pool/pmr_resource.hpp"
#include "cuvmm/pool/synchronous_allocations.hpp"
#include "cuvmm/pool/torch_api.h"
#include "on_gpu.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::call;
using driver::EntryPoint;

class PoolAdaptersOnGpu : public test::OnGpu {
 protected:
  void fill(DeviceAddress address, std::size_t bytes, unsigned value, CUstream stream) {
    call<EntryPoint::cuMemsetD32Async>(api(), address.value, value, bytes / 4, stream);
  }
  void finish(CUstream stream) { call<EntryPoint::cuStreamSynchronize>(api(), stream); }
};

TEST_F(PoolAdaptersOnGpu, AVectorInHostMemoryIsTheDevicesToo) {
  const CUstream stream = this->stream();
  std::vector<Location> locations;
  if (device_.supports_host_memory()) locations.push_back(Location::host());
  if (device_.supports_host_numa_memory() && device_.host_numa_node() >= 0)
    locations.push_back(Location::host_numa(device_.host_numa_node()));
  ASSERT_FALSE(locations.empty()) << "the driver has no memory of the host";
  for (const Location& location : locations) {
    HostMemoryResource resource(driver_, {.location = location, .large_from = 8_MiB});
    for (const std::size_t count : {std::size_t{1'000}, std::size_t{10'000'000}}) {
      std::pmr::vector<unsigned> values(count, 7U, &resource);
      const DeviceAddress address{reinterpret_cast<std::uintptr_t>(values.data())};
      std::vector<unsigned> seen(count);
      call<EntryPoint::cuMemcpyDtoHAsync>(api(), static_cast<void*>(seen.data()), address.value, count * 4, stream);
      finish(stream);
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 7U), static_cast<std::ptrdiff_t>(count)) << to_string(location);
      fill(address, count * 4, 8, stream);
      finish(stream);
      EXPECT_EQ(std::count(values.begin(), values.end(), 8U), static_cast<std::ptrdiff_t>(count));
    }
    EXPECT_EQ(resource.live_bytes(), 0u);
  }
}

TEST_F(PoolAdaptersOnGpu, SynchronousMemoryOutlivesTheWorkOnIt) {
  const CUstream stream = this->stream();
  Pool pool = Pool::create(driver_);
  auto memory = SynchronousAllocations::create(pool);
  for (unsigned round = 0; round < 5; ++round) {
    const DeviceAddress address = memory.allocate(128_MiB);
    for (unsigned each = 0; each < 10; ++each) fill(address, 128_MiB, each, stream);
    memory.free(address);
    EXPECT_EQ(api().cuStreamQuery(stream), CUDA_SUCCESS) << "freed before the work was done";
    EXPECT_EQ(pool.trim(), 128_MiB);
  }
}

TEST_F(PoolAdaptersOnGpu, PyTorchsFunctionsServeStreamsAndCaptures) {
  const CUstream stream = this->stream();
  void* const tensor = cuvmm_pool_torch_malloc(64 << 20, 0, stream);
  ASSERT_NE(tensor, nullptr) << cuvmm_pool_last_error();
  fill(DeviceAddress{reinterpret_cast<std::uintptr_t>(tensor)}, 64_MiB, 1, stream);
  cuvmm_pool_torch_free(tensor, 64 << 20, 0, stream);
  EXPECT_EQ(cuvmm_pool_torch_malloc(64 << 20, 0, stream), tensor);
  cuvmm_pool_torch_free(tensor, 64 << 20, 0, stream);

  call<EntryPoint::cuStreamBeginCapture>(api(), stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  const auto before = set_cleanup_failure_handler([](const Failure&) {});
  EXPECT_EQ(cuvmm_pool_torch_malloc(1 << 20, 0, stream), nullptr);
  set_cleanup_failure_handler(before);
  EXPECT_NE(std::string(cuvmm_pool_last_error()).find("captured"), std::string::npos);
  void* const segment = cuvmm_pool_torch_segment_malloc(20 << 20, 0, stream);
  ASSERT_NE(segment, nullptr) << cuvmm_pool_last_error();
  fill(DeviceAddress{reinterpret_cast<std::uintptr_t>(segment)}, 20_MiB, 9, stream);
  CUgraph graph = nullptr;
  call<EntryPoint::cuStreamEndCapture>(api(), stream, &graph);
  CUgraphExec runnable = nullptr;
  call<EntryPoint::cuGraphInstantiateWithFlags>(api(), &runnable, graph, 0ULL);
  call<EntryPoint::cuGraphLaunch>(api(), runnable, stream);
  unsigned word = 0;
  call<EntryPoint::cuMemcpyDtoHAsync>(api(), static_cast<void*>(&word), reinterpret_cast<CUdeviceptr>(segment),
                                      sizeof word, stream);
  finish(stream);
  EXPECT_EQ(word, 9u);
  call<EntryPoint::cuGraphExecDestroy>(api(), runnable);
  call<EntryPoint::cuGraphDestroy>(api(), graph);
  cuvmm_pool_torch_segment_free(segment, 20 << 20, 0, stream);
  cuvmm_pool_torch_empty_cache();
  cuvmm_pool_numbers numbers{};
  ASSERT_EQ(cuvmm_pool_statistics(cuvmm_pool_torch_pool(0), &numbers), 0);
  EXPECT_EQ(numbers.reserved_bytes, 0u);
}

}  // namespace
}  // namespace cuvmm
