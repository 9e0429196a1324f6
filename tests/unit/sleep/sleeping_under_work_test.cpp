// Nothing falls asleep under running work.
#include <gtest/gtest.h>

#include <optional>
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

// Where the driver does not tell the end of a copy of the library's own, which goes on: the machine advances in calls
// that ask it to, and unmapping memory under pending work is refused there, and so seen.
class SleepingUnderItsOwnCopy : public testing::TestWithParam<SleepingContent> {
 protected:
  void SetUp() override {
    auto mapped = MappedRange::create(machine_.driver(), {.capacity = 64_MiB});
    mapped.append(4_MiB);
    copy_to_device(mapped, 0, content_);
    range_ = memory_.add("group", std::move(mapped), {.content = GetParam()});
  }
  void fail(EntryPoint entry) {
    machine_.faults().inject({entry, 1, CUDA_ERROR_UNKNOWN, driver::FaultTiming::instead, true});
  }
  void expect_content() {
    std::vector<std::byte> seen(content_.size());
    copy_from_device(seen, range_->range(), 0);
    EXPECT_TRUE(seen == content_);
  }
  // Whether something is mapped at the range's address.
  bool is_mapped(DeviceAddress address) {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
    unsigned long long flags = 0;
    return machine_.api().cuMemGetAccess(&flags, &location, address.value) == CUDA_SUCCESS;
  }

  SafeRecordingHandler clean_up_;
  RetirementMachine machine_{strict_machine(emulator::Scheduler::stepped)};
  std::vector<std::byte> content_ = std::vector<std::byte>(4_MiB, std::byte{9});
  SleepableMemory memory_ = SleepableMemory::create(machine_.driver(), {.copy_threads = 1});
  std::optional<SleepableRange> range_;
  const std::vector<std::string> tags_{"group"};
};

TEST_P(SleepingUnderItsOwnCopy, C01_SleepingLeavesTheRangeMapped) {
  fail(EntryPoint::cuStreamSynchronize);
  fail(EntryPoint::cuEventSynchronize);
  const auto refused = memory_.try_sleep(tags_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().code, CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(range_->asleep());
  EXPECT_EQ(range_->range().mapped_bytes(), 4_MiB);
  const auto told = clean_up_.take();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].call, "cuStreamSynchronize");
  EXPECT_NE(told[0].reason.find("all that it uses stays"), std::string::npos) << told[0].message();
  machine_.faults().clear();
  EXPECT_TRUE(memory_.try_sleep(tags_)) << "once the copy is done";
  EXPECT_TRUE(memory_.try_wake(tags_));
  expect_content();
  for (const Failure& each : clean_up_.take()) ADD_FAILURE() << each.message();
}

TEST_P(SleepingUnderItsOwnCopy, C01_WakingWaitsForItBeforeItGivesUp) {
  ASSERT_TRUE(memory_.try_sleep(tags_));
  fail(EntryPoint::cuStreamSynchronize);
  fail(EntryPoint::cuEventSynchronize);
  EXPECT_FALSE(memory_.try_wake(tags_));
  EXPECT_TRUE(range_->asleep());
  EXPECT_FALSE(is_mapped(range_->address())) << "the range was told of the copy, and waited for it";
  const auto told = clean_up_.take();
  ASSERT_EQ(told.size(), 1U) << "the wait alone";
  machine_.faults().clear();
  EXPECT_TRUE(memory_.try_wake(tags_));
  expect_content();
  for (const Failure& each : clean_up_.take()) ADD_FAILURE() << each.message();
}

TEST_P(SleepingUnderItsOwnCopy, C01_TheEndOfTheRangeWaitsForIt) {
  fail(EntryPoint::cuStreamSynchronize);
  fail(EntryPoint::cuEventSynchronize);
  EXPECT_FALSE(memory_.try_sleep(tags_));
  EXPECT_EQ(clean_up_.take().size(), 1U);
  const DeviceAddress address = range_->address();
  range_.reset();
  EXPECT_FALSE(is_mapped(address));
  for (const Failure& each : clean_up_.take()) ADD_FAILURE() << each.message();
}

TEST_P(SleepingUnderItsOwnCopy, C01_WhatNobodyCanBeToldOfStaysForEver) {
  fail(EntryPoint::cuStreamSynchronize);
  fail(EntryPoint::cuEventSynchronize);
  fail(EntryPoint::cuStreamGetCtx);
  EXPECT_FALSE(memory_.try_sleep(tags_));
  machine_.faults().clear();
  EXPECT_EQ(clean_up_.take().size(), 2U) << "the wait, and that the range could not be told";
  const auto refused = memory_.try_sleep(tags_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.failure().rule.find("did not tell the end of an earlier copy"), std::string::npos)
      << refused.failure().message();
  expect_content();
  const DeviceAddress address = range_->address();
  range_.reset();
  EXPECT_TRUE(is_mapped(address));
  EXPECT_EQ(clean_up_.take().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Kept, SleepingUnderItsOwnCopy,
                         testing::Values(SleepingContent::pinned, SleepingContent::pageable, SleepingContent::file),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// What the range was told of before it slept is no reason to wait where waking fails: its pages are new.
TEST_F(SleepingUnderWork, WakingIsUndoneWithoutWaitingForWorkOfStreams) {
  auto memory = SleepableMemory::create(machine_.driver());
  MappedRangeOptions options;
  options.capacity = 16_MiB;
  options.device_wait = 0ms;
  options.chunks = ChunkPolicy::fixed(2_MiB);
  auto mapped = MappedRange::create(machine_.driver(), options);
  mapped.append(4_MiB);
  mapped.used_on(stream_);
  auto range = memory.add("group", std::move(mapped), {.content = SleepingContent::discarded});
  memory.sleep("group");
  machine_.wait(stream_, word_);  // the stream goes on with something else
  machine_.faults().inject({EntryPoint::cuMemMap, 2, CUDA_ERROR_UNKNOWN, driver::FaultTiming::instead, false});
  const std::vector<std::string> tags{"group"};
  EXPECT_FALSE(memory.try_wake(tags));
  for (const Failure& each : clean_up_.take()) ADD_FAILURE() << each.message();
  EXPECT_TRUE(range.asleep());
  EXPECT_TRUE(memory.try_wake(tags));
  RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
}

}  // namespace
}  // namespace cuvmm
