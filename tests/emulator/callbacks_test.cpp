// Functions that a program gives to the driver: what they may do while the driver calls them.
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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

// Neither the machine's lock nor the streams' is held: the receiver may make any call, also one that is warned of and
// the very call that is being made.
TEST(WarningReceivers, MayCallTheDriver) {
  EXPECT_TRUE(succeeds_in_child([] {
    std::vector<std::string> warnings;
    std::function<void()> body;
    Configuration configuration = strict();
    configuration.mode = Mode::faithful;
    configuration.on_warning = [&](const std::string& line) {
      warnings.push_back(line);
      if (warnings.size() == 1) body();
    };
    Emulated driver(configuration);
    const CUdeviceptr range = driver.reserve(4 * chunk), second = driver.reserve(4 * chunk);
    const auto handle = driver.create(on_device(0), 2 * chunk);
    CUresult inner[3] = {};
    body = [&] {
      inner[0] = driver->cuMemUnmap(second, chunk / 2);  // warned of: not aligned
      inner[1] = driver->cuMemMap(second + 3 * chunk, 2 * chunk, 0, handle, 0);
      inner[2] = driver->cuCtxSynchronize();
    };
    CHILD_CHECK(driver->cuMemMap(range + 3 * chunk, 2 * chunk, 0, handle, 0) == CUDA_SUCCESS);
    for (const CUresult code : inner) CHILD_CHECK(code == CUDA_SUCCESS);
    CHILD_CHECK(driver.live().mappings == 2);
    CHILD_CHECK(warnings.size() == 2);
    CHILD_CHECK(warnings[0].find("MAP-INSIDE-ONE-RESERVATION") != std::string::npos);
    CHILD_CHECK(warnings[1].find("UNMAP-ALIGNED") != std::string::npos);
    return 0;
  }));
}

// Warnings of calls that look at no virtual memory.
TEST(WarningReceivers, MayCallTheDriverFromOtherCallsToo) {
  EXPECT_TRUE(succeeds_in_child([] {
    int warnings = 0;
    CUresult code = CUDA_ERROR_UNKNOWN;
    std::function<void()> body;
    Configuration configuration = strict();
    configuration.mode = Mode::faithful;
    configuration.on_warning = [&](const std::string&) {
      ++warnings;
      body();
    };
    Emulated driver(configuration);
    const CUdeviceptr range = driver.mapped();
    body = [&] {
      CUdeviceptr address = 0;
      code = driver->cuMemAddressReserve(&address, chunk, 0, 0, 0);
    };
    CHILD_CHECK(driver->cuMemsetD8(range, 7, ~std::size_t{0}) == CUDA_SUCCESS);  // wraps around
    CHILD_CHECK(warnings == 1);
    CHILD_CHECK(code == CUDA_SUCCESS);
    return 0;
  }));
}

// The driver is gone once what its configuration held is.
template <class Condition>
void await(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

// A driver of which there is one reference, which letting_go() takes away.
struct LastReference {
  explicit LastReference(Scheduler scheduler) {
    std::shared_ptr<std::atomic<bool>> kept(&driver_gone, [](std::atomic<bool>* gone) { gone->store(true); });
    Configuration configuration = strict();
    configuration.scheduler = scheduler;
    configuration.kernels = {kernel_doing([this, kept = std::move(kept)] { reference.reset(); })};
    reference = make_emulated_driver(configuration);
    raw = reference.get();
    EXPECT_EQ(raw->cuInit(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    EXPECT_EQ(raw->cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(raw->cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(raw->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  CUresult launch_host_function() {
    return raw->cuLaunchHostFunc(
        stream, [](void* self) { static_cast<LastReference*>(self)->reference.reset(); }, this);
  }
  CUresult launch_kernel() const {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_EQ(raw->cuModuleLoadData(&module, ".version 8.0\n.visible .entry body()\n"), CUDA_SUCCESS);
    EXPECT_EQ(raw->cuModuleGetFunction(&function, module, "body"), CUDA_SUCCESS);
    return raw->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }

  std::shared_ptr<driver::Interface> reference;
  driver::Interface* raw = nullptr;
  CUstream stream = nullptr;
  std::atomic<bool> driver_gone = false;
};

TEST(LastReferences, MayGoInAHostFunctionOrKernelOnAWorker) {
  for (const bool kernel : {false, true})
    EXPECT_TRUE(succeeds_in_child([&] {
      LastReference last(Scheduler::threaded);
      CHILD_CHECK((kernel ? last.launch_kernel() : last.launch_host_function()) == CUDA_SUCCESS);
      await([&] { return last.driver_gone.load(); });
      return 0;
    })) << kernel;
}

TEST(LastReferences, MayGoInAHostFunctionOrKernelThatAWaitingCallRuns) {
  for (const bool kernel : {false, true})
    EXPECT_TRUE(succeeds_in_child([&] {
      LastReference last(Scheduler::stepped);
      CHILD_CHECK((kernel ? last.launch_kernel() : last.launch_host_function()) == CUDA_SUCCESS);
      CHILD_CHECK(!last.driver_gone);
      CHILD_CHECK(last.raw->cuStreamSynchronize(last.stream) == CUDA_SUCCESS);
      CHILD_CHECK(last.driver_gone);
      return 0;
    })) << kernel;
}

TEST(LastReferences, ToAnotherDriverGoAtOnce) {
  LastReference other(Scheduler::threaded);
  Emulated driver;
  bool gone = false;
  std::pair<LastReference*, bool*> data(&other, &gone);
  EXPECT_ANSWER(SUCCESS, *driver,
                cuLaunchHostFunc(
                    nullptr,
                    [](void* pair) {
                      auto& [last, answer] = *static_cast<std::pair<LastReference*, bool*>*>(pair);
                      last->reference.reset();
                      *answer = last->driver_gone.load();
                    },
                    &data));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace cuvmm::emulator::test
