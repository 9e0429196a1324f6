// Memory that graphs allocate, objects that they keep, and dependencies that captures are told.
#include <limits>
#include <string>
#include <vector>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

class GraphMemory : public ::testing::Test {
 protected:
  CUstream make_stream() {
    CUstream made = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
  }
  void begin() { EXPECT_ANSWER(SUCCESS, *driver, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED)); }
  CUgraphExec end(unsigned long long flags = 0) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, &graph));
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphInstantiateWithFlags(&exec, graph, flags));
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphDestroy(graph));
    return exec;
  }
  CUdeviceptr capture_allocation(std::uint64_t bytes = 64) {
    CUdeviceptr made = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocAsync(&made, bytes, stream));
    return made;
  }
  std::uint64_t number(CUgraphMem_attribute attribute) {
    std::uint64_t value = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
  }
  void launch(CUgraphExec exec) {
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(exec, stream));
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
  }

  Emulated driver;
  CUstream stream = make_stream();
};

TEST_F(GraphMemory, LivesFromItsNodeToItsFree) {
  const CUdeviceptr output = driver.mapped();
  begin();
  const CUdeviceptr memory = capture_allocation();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 5, 64, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoDAsync(output, memory, 64, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(memory, stream));
  const CUgraphExec exec = end();
  EXPECT_EQ(number(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0U) << "only a launch needs memory";
  for (int time = 0; time < 2; ++time) {
    launch(exec);
    EXPECT_EQ(driver.read(output, 64), std::vector<unsigned char>(64, 5));
    EXPECT_EQ(number(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 32 * mebibyte) << "it keeps what it had";
    EXPECT_EQ(number(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 32 * mebibyte);
  }
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGraphMemTrim(0));
  EXPECT_EQ(number(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0U);
  EXPECT_EQ(number(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0U);
  EXPECT_EQ(number(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 32 * mebibyte);
  EXPECT_EQ(number(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 32 * mebibyte);
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphExecDestroy(exec));
  EXPECT_EQ(driver.live().pool_allocations, 0U);
}

TEST_F(GraphMemory, IsNotThereBeforeAndAfter) {
  begin();
  const CUdeviceptr memory = capture_allocation();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  const CUgraphExec exec = end();
  launch(exec);
  char bytes[64];
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8Async(memory, 5, 64, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoHAsync(bytes, memory, 64, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
}

TEST_F(GraphMemory, IsThereForWorkBehindTheLaunch) {
  begin();
  const CUdeviceptr memory = capture_allocation();
  const CUgraphExec exec = end();
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8Async(memory, 5, 64, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(exec, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 5, 64, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
  EXPECT_EQ(driver.read(memory, 64), std::vector<unsigned char>(64, 5));
}

TEST_F(GraphMemory, IsOfOneInstantiationAtATime) {
  begin();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(capture_allocation(), stream));
  CUgraph graph = nullptr;
  CUgraphExec first = nullptr, second = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, &graph));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphInstantiateWithFlags(&first, graph, 0));
  EXPECT_ANSWER(ERROR_NOT_SUPPORTED, *driver, cuGraphInstantiateWithFlags(&second, graph, 0));
  EXPECT_ANSWER(ERROR_NOT_SUPPORTED, *driver, cuGraphInstantiateWithFlags(&second, graph, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphExecDestroy(first));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphInstantiateWithFlags(&second, graph, 0));
}

TEST_F(GraphMemory, ThatNoDeviceHasIsRefusedToTheCapture) {
  begin();
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemAllocAsync(&memory, std::size_t{1} << 44, stream));
  launch(end());
}

TEST_F(GraphMemory, ThatIsLeftIsFreedOutsideBeforeTheNextLaunch) {
  begin();
  const CUdeviceptr memory = capture_allocation();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 5, 64, stream));
  const CUgraphExec exec = end();
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(memory, stream));
  launch(exec);
  EXPECT_EQ(driver.read(memory, 64), std::vector<unsigned char>(64, 5));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuGraphLaunch(exec, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(exec, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
  launch(exec);
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphExecDestroy(exec));
  EXPECT_EQ(driver.read(memory, 64), std::vector<unsigned char>(64, 5)) << "it outlives its graph";
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(memory));
  EXPECT_EQ(driver.live().pool_allocations, 0U);
}

TEST_F(GraphMemory, ThatIsFreedBeforeItsNodeRanIsNotThere) {
  begin();
  const CUdeviceptr memory = capture_allocation();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 5, 64, stream));
  const CUgraphExec exec = end();
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(exec, stream));
  (void)driver->cuMemFree(memory);  // it may come before the launch or behind it, and harms the one that it precedes
  (void)driver->cuStreamSynchronize(stream);
  unsigned char byte = 0;
  EXPECT_NE(driver->cuMemcpyDtoH(&byte, memory, 1), CUDA_SUCCESS);
}

TEST_F(GraphMemory, IsFreedByLaunchesThatAreToldTo) {
  begin();
  const CUdeviceptr memory = capture_allocation();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 5, 64, stream));
  const CUgraphExec exec = end(1);  // AUTO_FREE_ON_LAUNCH
  launch(exec);
  launch(exec);
  EXPECT_EQ(number(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 32 * mebibyte);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(memory));
}

TEST_F(GraphMemory, IsLimitedByTheDevice) {
  begin();
  const CUdeviceptr memory = capture_allocation(driver.free_memory() * 3 / 5);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  const CUgraphExec exec = end();
  CUdeviceptr taken = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&taken, driver.free_memory() * 3 / 5));
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuGraphLaunch(exec, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(taken));
  launch(exec);
}

TEST_F(GraphMemory, IsTakenWholeOrNotAtAll) {
  const std::uint64_t most = driver.free_memory() * 3 / 5;
  begin();
  const CUdeviceptr first = capture_allocation(most);
  const CUdeviceptr second = capture_allocation(most);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(second, stream));
  const CUgraphExec exec = end();
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuGraphLaunch(exec, stream));
  EXPECT_EQ(number(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0U);
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuGraphLaunch(exec, stream));
}

TEST_F(GraphMemory, IsFreedInCapturesByGraphsAlone) {
  CUdeviceptr outside = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocAsync(&outside, 64, stream));
  begin();
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(outside, stream));
  launch(end());  // the capture is not invalid for that
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(outside, stream));
}

TEST_F(GraphMemory, OfACaptureThatFailsGoes) {
  begin();
  (void)capture_allocation();
  EXPECT_EQ(driver.live().pool_allocations, 1U);
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_UNSUPPORTED, *driver, cuStreamSynchronize(stream));
  CUgraph graph = nullptr;
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_INVALIDATED, *driver, cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(driver.live().pool_allocations, 0U);
}

// Memory of one graph that another is to free, and is captured to free no more.
class FreeNodes : public GraphMemory {
 protected:
  void begin_with_free() {
    begin();
    EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(memory, stream));  // it is freed already
  }
  void expect_that_it_can_be_freed() {
    begin_with_free();
    const CUgraphExec freeing = end();
    launch(freeing);
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphExecDestroy(freeing));
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphExecDestroy(exec));
    EXPECT_EQ(driver.live().pool_allocations, 0U);
  }

  void SetUp() override {
    begin();
    memory = capture_allocation();
    exec = end();
    launch(exec);
  }

  CUdeviceptr memory = 0;
  CUgraphExec exec = nullptr;
};

TEST_F(FreeNodes, GoWithACaptureThatFails) {
  begin_with_free();
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_UNSUPPORTED, *driver, cuStreamSynchronize(stream));
  CUgraph graph = nullptr;
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_INVALIDATED, *driver, cuStreamEndCapture(stream, &graph));
  expect_that_it_can_be_freed();
}

TEST_F(FreeNodes, GoWithACaptureThatIsNotJoined) {
  begin_with_free();
  CUevent fork = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  EXPECT_ANSWER(SUCCESS, *driver, cuEventRecord(fork, stream));
  const CUstream side = make_stream();
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWaitEvent(side, fork, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(driver.mapped(), 1, 4, side));
  CUgraph graph = nullptr;
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_UNJOINED, *driver, cuStreamEndCapture(stream, &graph));
  expect_that_it_can_be_freed();
}

TEST_F(FreeNodes, GoWithTheStreamThatIsCaptured) {
  begin_with_free();
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamDestroy(stream));
  stream = make_stream();
  expect_that_it_can_be_freed();
}

TEST_F(FreeNodes, GoWithAGraphThatWasNotLaunched) {
  begin_with_free();
  CUgraph graph = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, &graph));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphDestroy(graph));
  expect_that_it_can_be_freed();
}

TEST_F(FreeNodes, MayBeOfSeveralGraphsOfWhichOneFrees) {
  begin_with_free();
  const CUgraphExec first = end();
  begin_with_free();
  const CUgraphExec second = end();
  launch(second);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuGraphLaunch(first, stream));
  launch(exec);
  launch(first);
}

TEST(FreeNodesOfOldMemory, FreeNothingThatLiesThereNow) {
  Configuration narrow = strict();
  narrow.address_bytes = chunk;  // so that all memory of a chunk lies at one address
  const Emulated driver(narrow);
  CUstream stream = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto captured = [&](auto&& work) {
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    work();
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, &graph));
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT_ANSWER(SUCCESS, *driver, cuGraphDestroy(graph));
    return exec;
  };
  CUdeviceptr first = 0, second = 0;
  const CUgraphExec allocating =
      captured([&] { EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocAsync(&first, chunk, stream)); });
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(allocating, stream));
  const CUgraphExec freeing = captured([&] { EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream)); });
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(freeing, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphExecDestroy(allocating));

  const CUgraphExec anew = captured([&] { EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocAsync(&second, chunk, stream)); });
  ASSERT_EQ(second, first);
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(anew, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuGraphLaunch(freeing, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(second, 5, 64, stream));  // it is still there
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphExecDestroy(freeing));
  const CUgraphExec right = captured([&] { EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(second, stream)); });
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphLaunch(right, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
}

TEST_F(GraphMemory, HasAttributesOfItsOwn) {
  std::uint64_t value = 1;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value));
  value = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuDeviceGetGraphMemAttribute(0, static_cast<CUgraphMem_attribute>(9), &value));
  EXPECT_ANSWER(ERROR_INVALID_DEVICE, *driver, cuDeviceGraphMemTrim(9));
}

TEST_F(GraphMemory, UploadLooksAtItsHandles) {
  begin();
  const CUgraphExec exec = end();
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphUpload(exec, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuGraphUpload(nullptr, stream));
  EXPECT_ANSWER(ERROR_INVALID_HANDLE, *driver, cuGraphUpload(exec, reinterpret_cast<CUstream>(this)));
}

TEST_F(GraphMemory, CapturesTakeDependenciesThatTheyAreTold) {
  const CUdeviceptr memory = driver.mapped();
  begin();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 1, 4, stream));
  CUstreamCaptureStatus status{};
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  const auto dependencies = [&] {
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &count));
    return count;
  };
  EXPECT_EQ(dependencies(), 1U);
  CUgraphNode first = nodes[0];
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamUpdateCaptureDependencies(stream, nullptr, 0, 1));
  EXPECT_EQ(dependencies(), 0U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 1, 4, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamUpdateCaptureDependencies(stream, &first, 1, 0));
  EXPECT_EQ(dependencies(), 2U) << "added to the second";
  auto no_node = reinterpret_cast<CUgraphNode>(this);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamUpdateCaptureDependencies(stream, &no_node, 1, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamUpdateCaptureDependencies(stream, &first, 1, 2));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamUpdateCaptureDependencies(stream, nullptr, 1, 0));
  (void)end();
  EXPECT_ANSWER(ERROR_ILLEGAL_STATE, *driver, cuStreamUpdateCaptureDependencies(stream, nullptr, 0, 1));
  EXPECT_ANSWER(ERROR_ILLEGAL_STATE, *driver, cuStreamUpdateCaptureDependencies(stream, nullptr, 1, 2));
}

// Counts how often it was called.
void count_up(void* number) {
  ++*static_cast<int*>(number);
}

TEST_F(GraphMemory, UserObjectsEndWithTheirLastReference) {
  int ended = 0;
  CUuserObject object = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectCreate(&object, &ended, count_up, 2, 1));
  begin();
  CUgraph graph = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamEndCapture(stream, &graph));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphRetainUserObject(graph, object, 2, CU_GRAPH_USER_OBJECT_MOVE));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectRelease(object, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuGraphReleaseUserObject(graph, object, 3));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphReleaseUserObject(graph, object, 1));
  CUgraphExec exec = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphDestroy(graph));
  EXPECT_EQ(ended, 0) << "what was made of the graph keeps it";
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectRetain(object, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuGraphExecDestroy(exec));
  EXPECT_EQ(ended, 0);
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectRelease(object, 1));
  EXPECT_EQ(ended, 1);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectRetain(object, 1));
}

TEST_F(GraphMemory, UserObjectsWantADestructorAndKnownFlags) {
  int ended = 0;
  CUuserObject object = nullptr;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectCreate(&object, &ended, nullptr, 1, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectCreate(&object, &ended, count_up, 0, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectCreate(&object, &ended, count_up, 1, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectCreate(&object, &ended, count_up, 1, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectRelease(object, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuGraphRetainUserObject(nullptr, object, 1, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectRelease(object, 1));
  EXPECT_EQ(ended, 1);
}

TEST(UserObjects, NeedNoDriverThatIsInitialised) {
  api::EmulatedDriver driver(strict());
  int ended = 0;
  CUuserObject object = nullptr;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, driver, cuUserObjectRelease(nullptr, 1));
  EXPECT_ANSWER(SUCCESS, driver, cuUserObjectCreate(&object, &ended, count_up, 1, 1));
  EXPECT_ANSWER(SUCCESS, driver, cuUserObjectRetain(object, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, driver, cuGraphRetainUserObject(nullptr, object, 1, 0));
  EXPECT_ANSWER(SUCCESS, driver, cuUserObjectRelease(object, 2));
  EXPECT_EQ(ended, 1);
}

TEST(UserObjects, HaveAsManyReferencesAsANumberSays) {
  const Emulated driver;
  int ended = 0;
  CUuserObject object = nullptr;
  constexpr unsigned most = std::numeric_limits<int>::max();
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectCreate(&object, &ended, count_up, 2 * most + 1, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectRetain(object, most + 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectRetain(object, most));
  for (int times = 0; times < 3; ++times) EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectRelease(object, most));
  EXPECT_EQ(ended, 0);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectRelease(object, most + 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectRelease(object, 2));  // the strict mode minds
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectRelease(object, 1));
  EXPECT_EQ(ended, 1);
}

TEST(UserObjects, MayBeReleasedMoreOftenThanTheyWereRetained) {
  Configuration faithful;
  std::vector<std::string> warnings;
  faithful.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  const Emulated driver{faithful};
  int ended = 0;
  CUuserObject object = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectCreate(&object, &ended, count_up, 2, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectRelease(object, 1));
  EXPECT_TRUE(warnings.empty());
  EXPECT_ANSWER(SUCCESS, *driver, cuUserObjectRelease(object, 2));
  EXPECT_EQ(ended, 0) << "the count has gone past 0";
  EXPECT_EQ(warnings.size(), 1U);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuUserObjectRelease(object, 1));  // it is gone
}

}  // namespace
}  // namespace cuvmm::emulator::test
