// Functions that a program gives to the driver: what they may do while the driver calls them.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "child.hpp"
#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

// A kernel without arguments that calls `body`.
HostKernel kernel_doing(std::function<void()> body) {
  return {"body",
          {},
          [](const KernelArguments&) { return std::vector<KernelView>{}; },
          [body = std::move(body)](const KernelCall&) {
            body();
            return KernelProgress::done;
          }};
}

std::vector<Scheduler> both_schedulers() {
  return {Scheduler::threaded, Scheduler::stepped};
}

TEST(HostKernelBodies, CannotCallTheDriver) {
  EXPECT_TRUE(succeeds_in_child([] {
    for (const Scheduler scheduler : both_schedulers()) {
      std::vector<CUresult> codes;
      std::string explanation;
      Emulated* calls = nullptr;
      CUdeviceptr allocation = 0;
      CUstream stream = nullptr;
      CUevent event = nullptr;
      Configuration configuration = strict();
      configuration.scheduler = scheduler;
      configuration.kernels = {kernel_doing([&] {
        Emulated& driver = *calls;
        codes = {driver->cuStreamSynchronize(stream), driver->cuCtxSynchronize(), driver->cuEventSynchronize(event),
                 driver->cuMemFree(allocation), driver->cuStreamQuery(stream)};
        explanation = driver->explanation();
      })};
      Emulated driver(configuration);
      calls = &driver;
      CHILD_CHECK(driver->cuMemAlloc(&allocation, 64) == CUDA_SUCCESS);
      CHILD_CHECK(driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
      CHILD_CHECK(driver->cuEventCreate(&event, 0) == CUDA_SUCCESS);
      CHILD_CHECK(driver.launch(driver.function("body"), stream) == CUDA_SUCCESS);
      CHILD_CHECK(driver->cuEventRecord(event, stream) == CUDA_SUCCESS);
      CHILD_CHECK(driver->cuCtxSynchronize() == CUDA_SUCCESS);
      CHILD_CHECK(codes == std::vector<CUresult>(5, CUDA_ERROR_NOT_PERMITTED));
      CHILD_CHECK(explanation.find("NOT-IN-HOST-KERNEL") != std::string::npos);
      // The same calls outside.
      CHILD_CHECK(driver->cuStreamSynchronize(stream) == CUDA_SUCCESS);
      CHILD_CHECK(driver->cuEventSynchronize(event) == CUDA_SUCCESS);
      CHILD_CHECK(driver->cuMemFree(allocation) == CUDA_SUCCESS);
      CHILD_CHECK(driver->cuStreamQuery(stream) == CUDA_SUCCESS);
    }
    return 0;
  }));
}

TEST(HostKernelBodies, OfGraphsCannotCallTheDriver) {
  CUresult code = CUDA_SUCCESS;
  Emulated* calls = nullptr;
  Configuration configuration = strict();
  configuration.kernels = {kernel_doing([&] { code = (*calls)->cuCtxSynchronize(); })};
  Emulated driver(configuration);
  calls = &driver;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUfunction body = driver.function("body");
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(driver.launch(body, stream), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, &graph));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(exec, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
  EXPECT_EQ(code, CUDA_ERROR_NOT_PERMITTED);
}

}  // namespace
}  // namespace cuvmm::emulator::test
