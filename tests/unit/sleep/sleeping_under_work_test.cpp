// Nothing falls asleep under running work.
#include <gtest/gtest.h>

#include <thread>

#include "retirement.hpp"

namespace cuvmm {
namespace {

using namespace test;

class SleepingUnderWork : public testing::Test {
 protected:
  SleepableRange held_back(SleepableMemory& memory) {
    auto mapped = MappedRange::create(machine_.driver(), {.capacity = 64_MiB});
    mapped.append(4_MiB);
    mapped.used_on(stream_);
    machine_.wait(stream_, word_);
    call<EntryPoint::cuMemsetD8Async>(machine_.api(), mapped.address().value, static_cast<unsigned char>(7), 4_MiB,
                                      stream_);
    return memory.add("group", std::move(mapped), {.content = SleepingContent::pinned});
  }

  SafeRecordingHandler clean_up_;
  RetirementMachine machine_;
  CUstream stream_ = machine_.stream();
  std::uint32_t* word_ = machine_.word();
};

TEST_F(SleepingUnderWork, C01_TheWorkIsWaitedForAndItsBytesAreKept) {
  auto memory = SleepableMemory::create(machine_.driver());
  auto range = held_back(memory);
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    RetirementMachine::open(word_);
  });
  EXPECT_EQ(memory.sleep("group").bytes_given_back, 4_MiB);
  opener.join();
  memory.wake("group");
  std::vector<std::byte> seen(4_MiB);
  copy_from_device(seen, range.range(), 0);
  EXPECT_EQ(seen, std::vector<std::byte>(4_MiB, std::byte{7}));
  EXPECT_TRUE(clean_up_.take().empty());
}

TEST_F(SleepingUnderWork, C01_WorkThatIsNotDoneIsRefusedWhereWaitingIsNotAllowed) {
  auto memory = SleepableMemory::create(machine_.driver(), {.device_wait = 0ms});
  auto range = held_back(memory);
  const std::vector<std::string> tags{"group"};
  for (const SleepOptions& options : {SleepOptions{}, SleepOptions{.device_wait = 5ms}}) {
    const auto refused = memory.try_sleep(tags, options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.failure().kind, ErrorKind::timed_out);
    EXPECT_EQ(refused.failure().call, "SleepableMemory::sleep");
    EXPECT_NE(refused.failure().arguments.find("1 stream or event is not done"), std::string::npos)
        << refused.failure().message();
    EXPECT_FALSE(range.asleep());
    EXPECT_EQ(range.range().mapped_bytes(), range.range().size());
  }
  RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
  EXPECT_TRUE(memory.try_sleep(tags));
  EXPECT_TRUE(clean_up_.take().empty());
}

TEST_F(SleepingUnderWork, ARangeWithARetireQueueGivesItsMemoryBackAtOnce) {
  auto queue = RetireQueue::create(machine_.driver());
  auto memory = SleepableMemory::create(machine_.driver());
  MappedRangeOptions options;
  options.capacity = 16_MiB;
  options.retire_queue = queue;
  auto mapped = MappedRange::create(machine_.driver(), options);
  mapped.append(4_MiB);
  mapped.used_on(stream_);
  auto range = memory.add("group", std::move(mapped));
  EXPECT_EQ(memory.sleep("group").bytes_given_back, 4_MiB);
  EXPECT_EQ(queue->pending(), 0U);
  EXPECT_NO_THROW(memory.wake("group"));
}

TEST_F(SleepingUnderWork, AGraphThatMayStillRunIsNoReasonToWait) {
  auto memory = SleepableMemory::create(machine_.driver());
  auto mapped = MappedRange::create(machine_.driver(), {.capacity = 16_MiB});
  mapped.append(2_MiB);
  call<EntryPoint::cuStreamBeginCapture>(machine_.api(), stream_, CU_STREAM_CAPTURE_MODE_GLOBAL);
  const auto capture = mapped.used_on(stream_);
  CUgraph graph = nullptr;
  call<EntryPoint::cuStreamEndCapture>(machine_.api(), stream_, &graph);
  ASSERT_TRUE(capture);
  auto range = memory.add("group", std::move(mapped));
  const std::vector<std::string> tags{"group"};
  const auto refused = memory.try_sleep(tags);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::invalid_use);
  EXPECT_FALSE(range.asleep());
  call<EntryPoint::cuGraphDestroy>(machine_.api(), graph);
  range.range().uses().graph_gone(*capture);
  EXPECT_TRUE(memory.try_sleep(tags));
}

// Copying needs streams, events and pinned memory, which a capture of another thread would forbid.
TEST_F(SleepingUnderWork, ACaptureOfAnotherStreamIsNotDisturbed) {
  for (const SleepingContent content :
       {SleepingContent::pinned, SleepingContent::pageable, SleepingContent::file, SleepingContent::discarded}) {
    auto memory = SleepableMemory::create(machine_.driver());
    auto mapped = MappedRange::create(machine_.driver(), {.capacity = 16_MiB});
    mapped.append(4_MiB);
    auto range = memory.add("group", std::move(mapped), {.content = content});
    call<EntryPoint::cuStreamBeginCapture>(machine_.api(), stream_, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_NO_THROW(memory.sleep("group"));
    EXPECT_NO_THROW(memory.wake("group"));
    CUgraph graph = nullptr;
    EXPECT_EQ(machine_.api().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS) << to_string(content);
    call<EntryPoint::cuGraphDestroy>(machine_.api(), graph);
  }
  EXPECT_TRUE(clean_up_.take().empty());
}

}  // namespace
}  // namespace cuvmm
