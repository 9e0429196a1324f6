// A forked child of a process that has an emulated driver.
#include <cstring>
#include <memory>

#include "child.hpp"
#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

TEST(Fork, LeavesTheChildNoDriverAndTheParentItsBytes) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(range, 7, 16));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_TRUE(succeeds_in_child([&] {
    const bool refused = driver->cuMemsetD8(range, 9, 16) == CUDA_ERROR_NOT_INITIALIZED;
    const bool explained = driver->explanation().find("NOT-AFTER-FORK") != std::string::npos;
    return refused && explained ? 0 : 1;
  }));
  EXPECT_EQ(driver.read(range, 16), std::vector<unsigned char>(16, 7));
}

TEST(Fork, LetsTheChildMakeADriverOfItsOwnAndDropItsParents) {
  auto parents = std::make_unique<Emulated>();
  parents->mapped();
  EXPECT_TRUE(succeeds_in_child([&] {
    Emulated own;
    const bool works = own->cuMemsetD8(own.mapped(), 9, 16) == CUDA_SUCCESS && own->cuCtxSynchronize() == CUDA_SUCCESS;
    parents.reset();  // whose threads are not in this process
    return works ? 0 : 1;
  }));
}

// Another device's work uses memory that is page-locked by this one's context.
TEST(FreeingHostMemory, WaitsForTheWorkOfOtherContextsToo) {
  Configuration configuration = strict(2);
  configuration.scheduler = Scheduler::stepped;
  Emulated driver(configuration);
  void* host = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
  EXPECT_EQ(*static_cast<unsigned char*>(host), 0);
  std::memset(host, 5, 4096);
  driver.use(1);
  const CUdeviceptr range = driver.mapped(chunk, on_device(1), grant_device(1));
  CUstream stream = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyHtoDAsync(range, host, 4096, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeHost(host));
  EXPECT_EQ(driver.read(range, 4096), std::vector<unsigned char>(4096, 5));
}

}  // namespace
}  // namespace cuvmm::emulator::test
