// Stream capture through the entry points: what a capture lets pass, and what its graph does to memory that changed.
#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

CUstream capturing(Emulated& driver) {
  CUstream stream = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  return stream;
}

void expect_captured(Emulated& driver, CUstream stream, bool captured) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST(Capture, LetsSynchronousCopiesAndModuleLoadsPass) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped();
  const CUstream stream = capturing(driver);
  driver.write(range, {9});
  EXPECT_EQ(driver.read(range, 1), (std::vector<unsigned char>{9}));
  CUmodule module = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuModuleLoadData(&module, ".version 8.0"));
  expect_captured(driver, stream, true);
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_UNSUPPORTED, *driver, cuStreamSynchronize(stream));
}

CUgraph graph_of(Emulated& driver, CUstream stream) {
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr));
  EXPECT_NE(graph, nullptr);
  return graph;
}

// The handle that cuStreamGetCaptureInfo gives out while a graph is captured is that of the finished graph, or goes.
TEST(Capture, ThatIsSpoiledLeavesNoGraph) {
  Emulated driver;
  std::size_t nodes = 0;
  const CUstream stream = capturing(driver);
  const CUgraph spoiled = graph_of(driver, stream);
  EXPECT_EQ(driver->live_handles().graphs, 1U);
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphGetNodes(spoiled, nullptr, &nodes));
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_UNSUPPORTED, *driver, cuStreamSynchronize(stream));
  CUgraph ended = spoiled;
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_INVALIDATED, *driver, cuStreamEndCapture(stream, &ended));
  EXPECT_EQ(ended, nullptr);
  EXPECT_EQ(driver->live_handles().graphs, 0U);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuGraphGetNodes(spoiled, nullptr, &nodes));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuGraphDestroy(spoiled));

  EXPECT_ANSWER(SUCCESS, *driver, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const CUgraph whole = graph_of(driver, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, &ended));
  EXPECT_EQ(ended, whole);
  const CUstream other = capturing(driver);
  (void)graph_of(driver, other);
  EXPECT_EQ(driver->live_handles().graphs, 2U);
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamDestroy(other));
  EXPECT_EQ(driver->live_handles().graphs, 1U);
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphGetNodes(whole, nullptr, &nodes));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphDestroy(whole));
  EXPECT_EQ(driver->live_handles().graphs, 0U);
}

TEST(Capture, OfADestroyedContextLeavesNoGraph) {
  Emulated driver;
  CUcontext created = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&created, 0, 0));
  (void)graph_of(driver, capturing(driver));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(created));
  EXPECT_EQ(driver->live_handles(), api::EmulatedDriver::LiveHandles());
}

TEST(Capture, EndsWithoutAPlaceForItsGraph) {
  Emulated driver;
  const CUstream stream = capturing(driver);
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, nullptr));
  expect_captured(driver, stream, false);
}

TEST(Capture, ModesThatDoNotExistAreRefusedStrictlyAndWarnedOfFaithfully) {
  for (const Mode mode : {Mode::strict, Mode::faithful}) {
    std::vector<std::string> warnings;
    Configuration configuration = strict();
    configuration.mode = mode;
    configuration.on_warning = [&](const std::string& line) { warnings.push_back(line); };
    Emulated driver(configuration);
    auto wrong = static_cast<CUstreamCaptureMode>(3);
    if (mode == Mode::strict) {
      EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuThreadExchangeStreamCaptureMode(&wrong));
      EXPECT_NE(driver->explanation().find("CAPTURE-MODE"), std::string::npos);
    } else {
      EXPECT_ANSWER(SUCCESS, *driver, cuThreadExchangeStreamCaptureMode(&wrong));
      EXPECT_EQ(wrong, CU_STREAM_CAPTURE_MODE_GLOBAL);
      EXPECT_EQ(warnings.size(), 1U);
    }
    auto right = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_ANSWER(SUCCESS, *driver, cuThreadExchangeStreamCaptureMode(&right));
    right = CU_STREAM_CAPTURE_MODE_GLOBAL;
    EXPECT_ANSWER(SUCCESS, *driver, cuThreadExchangeStreamCaptureMode(&right));
  }
}

// A memset is not looked at until its graph runs: then memory that is gone is a failed launch.
TEST(Graphs, FindOutAtTheirLaunchThatMemoryIsGone) {
  for (const bool gone : {false, true}) {
    Emulated driver;
    const CUdeviceptr range = driver.mapped();
    const CUstream stream = capturing(driver);
    EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(range, 1, 64, stream));
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, &graph));
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuGraphInstantiateWithFlags(&exec, graph, 2));
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphInstantiateWithFlags(&exec, graph, 0));
    if (gone) EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(range, chunk));
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(exec, stream));
    EXPECT_EQ(driver->cuStreamSynchronize(stream), gone ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace cuvmm::emulator::test
