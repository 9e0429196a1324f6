// Where streams meet memory: values in it, work that is captured, host functions.
#include <functional>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

CUstream stream_of(Emulated& driver) {
  CUstream stream = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

class StreamValuesOn : public ::testing::TestWithParam<Scheduler> {};
INSTANTIATE_TEST_SUITE_P(Schedulers, StreamValuesOn, ::testing::Values(Scheduler::threaded, Scheduler::stepped),
                         [](const auto& instance) {
                           return instance.param == Scheduler::threaded ? "Threaded" : "Stepped";
                         });

TEST_P(StreamValuesOn, HoldAStreamUntilAnotherWritesThem) {
  Configuration configuration = strict();
  configuration.scheduler = GetParam();
  Emulated driver(configuration);
  const CUdeviceptr flags = driver.mapped(), data = driver.mapped();
  const CUstream waiting = stream_of(driver), writing = stream_of(driver);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(flags, 0, 64));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWaitValue32(waiting, flags, 5, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWaitValue64(waiting, flags + 8, 7, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoDAsync(data + 64, data, 8, waiting));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(data, 3, 8, writing));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWriteValue64(writing, flags + 8, 8, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(writing));
  EXPECT_ANSWER(ERROR_NOT_READY, *driver, cuStreamQuery(waiting));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWriteValue32(writing, flags, 5, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(waiting));
  EXPECT_EQ(driver.read(data + 64, 8), std::vector<unsigned char>(8, 3));
}

TEST(StreamValues, WantAlignedAddressesKnownFlagsAndRights) {
  Emulated driver;
  const CUdeviceptr flags = driver.mapped();
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamWriteValue32(nullptr, flags + 2, 1, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamWriteValue64(nullptr, flags + 4, 1, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamWriteValue32(nullptr, flags, 1, 2));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamWaitValue32(nullptr, flags, 0, 4));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamWriteValue32(nullptr, flags + chunk, 1, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWriteValue64(nullptr, flags + 8, 1, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_EQ(driver.grant(flags, chunk, grant_device(0, CU_MEM_ACCESS_FLAGS_PROT_READ)), CUDA_SUCCESS);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamWriteValue32(nullptr, flags, 1, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWaitValue32(nullptr, flags, 0, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
}

struct Capture {
  explicit Capture(Emulated& driver) : stream(stream_of(driver)) {
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  }
  CUgraphExec end(Emulated& driver) const {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, &graph));
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphInstantiateWithFlags(&executable, graph, 0));
    return executable;
  }
  CUstream stream;
};

TEST(CapturedWork, RunsWithTheRightsOfItsLaunch) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped();
  const Capture capture(driver);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(range, 4, 16, capture.stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoDAsync(range + 16, range, 16, capture.stream));
  const CUgraphExec graph = capture.end(driver);
  EXPECT_EQ(driver.read(range, 32), std::vector<unsigned char>(32, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(graph, capture.stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(capture.stream));
  EXPECT_EQ(driver.read(range, 32), std::vector<unsigned char>(32, 4));
  EXPECT_EQ(driver.grant(range, chunk, grant_device(0, CU_MEM_ACCESS_FLAGS_PROT_READ)), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(graph, capture.stream));
  EXPECT_ANSWER(ERROR_LAUNCH_FAILED, *driver, cuStreamSynchronize(capture.stream));
}

// Virtual memory management is allowed while a stream captures; what may wait for the device is not.
TEST(CapturedWork, ForbidsHeapAndHostAllocationAndNoVirtualMemory) {
  std::vector<unsigned char> memory(4096);
  const std::function<CUresult(Emulated&)> forbidden[] = {
      [](Emulated& driver) {
        CUdeviceptr pointer = 0;
        return driver->cuMemAlloc(&pointer, 1);
      },
      [](Emulated& driver) {
        void* pointer = nullptr;
        return driver->cuMemHostAlloc(&pointer, 1, 0);
      },
      [](Emulated& driver) {
        void* pointer = nullptr;
        return driver->cuMemAllocHost(&pointer, 1);
      },
      [&](Emulated& driver) { return driver->cuMemHostRegister(memory.data(), memory.size(), 0); },
  };
  for (const auto& call : forbidden) {
    Emulated driver;
    const Capture capture(driver);
    driver.unmap_and_free(driver.mapped());
    EXPECT_EQ(call(driver), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    EXPECT_ANSWER(ERROR_STREAM_CAPTURE_INVALIDATED, *driver, cuStreamEndCapture(capture.stream, &graph));
    EXPECT_EQ(call(driver), CUDA_SUCCESS);
  }
}

struct Called {
  api::EmulatedDriver* driver = nullptr;
  CUresult inside = CUDA_SUCCESS, version = CUDA_ERROR_UNKNOWN;
};

TEST(HostFunctions, MayNotCallTheDriver) {
  Emulated driver;
  Called called{&*driver};
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuLaunchHostFunc(nullptr, nullptr, nullptr));
  const CUhostFn function = [](void* data) {
    auto& call = *static_cast<Called*>(data);
    CUdeviceptr address = 0;
    call.inside = call.driver->cuMemAddressReserve(&address, chunk, 0, 0, 0);
    int version = 0;
    call.version = call.driver->cuDriverGetVersion(&version);
  };
  EXPECT_ANSWER(SUCCESS, *driver, cuLaunchHostFunc(nullptr, function, &called));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_EQ(called.inside, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(called.version, CUDA_SUCCESS);
  EXPECT_NE(driver.reserve(), 0U);
}

}  // namespace
}  // namespace cuvmm::emulator::test
