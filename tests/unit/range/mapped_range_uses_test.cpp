// Nothing is unmapped under running work. On a strict machine that would be refused, and so be seen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "retirement.hpp"

namespace cuvmm {
namespace {

using namespace test;

MappedRangeOptions small(std::chrono::milliseconds wait = 60s) {
  MappedRangeOptions options;
  options.capacity = 64_MiB;
  options.chunks = ChunkPolicy::fixed(2_MiB);
  options.device_wait = wait;
  return options;
}

class MappedRangeUses : public testing::Test {
 protected:
  void use(const MappedRange& range, std::size_t offset, CUstream stream) {
    call<EntryPoint::cuMemsetD8Async>(range.driver().interface(), (range.address() + offset).value,
                                      static_cast<unsigned char>(7), 4096U, stream);
  }
  // Work of the stream that ends once the word is opened.
  void hold_back_work_on(MappedRange& range) {
    range.used_on(stream_);
    machine_.wait(stream_, word_);
    use(range, 0, stream_);
  }
  void expect_no_complaint() {
    for (const Failure& each : clean_up_.take()) ADD_FAILURE() << each.message();
  }

  SafeRecordingHandler clean_up_;
  RetirementMachine machine_;
  CUstream stream_ = machine_.stream();
  std::uint32_t* word_ = machine_.word();
};

TEST_F(MappedRangeUses, UnmappingWaitsForTheStreamsThatUseTheRange) {
  auto range = MappedRange::create(machine_.driver(), small());
  range.append(4_MiB);
  hold_back_work_on(range);
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    RetirementMachine::open(word_);
  });
  range.unmap(0, 4_MiB);
  opener.join();
  EXPECT_EQ(range.mapped_bytes(), 0u);
  expect_no_complaint();
}

TEST_F(MappedRangeUses, AWaitThatLastsTooLongChangesNothing) {
  auto range = MappedRange::create(machine_.driver(), small(5ms));
  range.append(4_MiB);
  hold_back_work_on(range);
  const auto fresh = range.source()->acquire({}, 2_MiB);
  const auto refused = range.try_unmap(0, 2_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::timed_out);
  EXPECT_EQ(refused.failure().call, "MappedRange::unmap");
  EXPECT_NE(refused.failure().arguments.find("1 stream or event is not done"), std::string::npos)
      << refused.failure().message();
  EXPECT_THROW(range.replace(0, fresh), TimedOut);
  EXPECT_THROW(range.truncate(0), TimedOut);
  EXPECT_THROW(range.revoke(machine_.device().location()), TimedOut);
  EXPECT_THROW(range.close(), TimedOut);
  EXPECT_EQ(range.mapped_bytes(), 4_MiB);
  EXPECT_EQ(range.generation(), 0u);
  EXPECT_EQ(range.append(2_MiB), 4_MiB) << "growing waits for nothing";
  RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
  range.replace(0, fresh);
  range.close();
  expect_no_complaint();
}

TEST_F(MappedRangeUses, ALongWaitIsALongWait) {
  auto range = MappedRange::create(machine_.driver(), small(std::chrono::milliseconds::max()));
  range.append(2_MiB);
  range.used_on(stream_);
  machine_.wait(stream_, word_);
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    RetirementMachine::open(word_);
  });
  EXPECT_TRUE(range.try_unmap(0, 2_MiB));
  opener.join();
  expect_no_complaint();
}

TEST_F(MappedRangeUses, ObserversAreNotToldOfWhatTheDeviceIsNotReadyFor) {
  auto range = MappedRange::create(machine_.driver(), small(5ms));
  range.append(2_MiB);
  int told = 0;
  const auto observation = range.observe({[&](std::size_t, std::size_t) { ++told; }, {}});
  range.used_on(stream_);
  machine_.wait(stream_, word_);
  EXPECT_THROW(range.unmap(0, 2_MiB), TimedOut);
  EXPECT_EQ(told, 0);
  RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
  range.unmap(0, 2_MiB);
  EXPECT_EQ(told, 1);
}

TEST_F(MappedRangeUses, AQueueUnmapsBehindTheWorkAndTheCallerGoesOn) {
  MappedRangeOptions options = small(5ms);
  options.retire_queue = RetireQueue::create(machine_.driver());
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(4_MiB);
  hold_back_work_on(range);
  range.unmap(0, 4_MiB);  // does not wait
  EXPECT_EQ(range.mapped_bytes(), 0u);
  EXPECT_EQ(range.generation(), 1u);
  EXPECT_EQ(options.retire_queue->pending_bytes(), 4_MiB);
  EXPECT_EQ(range.source()->counters().live_bytes, 4_MiB) << "not given back yet";
  EXPECT_EQ(options.retire_queue->poll(), 0u);
  EXPECT_THROW(range.map(0, 2_MiB), TimedOut) << "the addresses are not free yet";
  EXPECT_NO_THROW(range.map(8_MiB, 2_MiB)) << "others are";
  RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
  range.map(0, 2_MiB);  // polls the queue by itself
  EXPECT_EQ(range.source()->counters().live_bytes, 4_MiB);
  expect_no_complaint();
}

TEST_F(MappedRangeUses, WhatIsNotAskedForDoesNotWaitForRetiredAddresses) {
  MappedRangeOptions options = small(5ms);
  options.chunks = ChunkPolicy::geometric();
  options.retire_queue = RetireQueue::create(machine_.driver());
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(8_MiB);
  range.map(12_MiB, 2_MiB);
  hold_back_work_on(range);
  range.truncate(8_MiB);  // retires the chunk at 12 MiB
  EXPECT_EQ(range.append(2_MiB), 8_MiB) << "of the 8 MiB that the policy asks for, 4 are free";
  EXPECT_EQ(range.mapped_bytes(), 12_MiB);
  EXPECT_THROW(range.append(4_MiB), TimedOut) << "these are needed";
  RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
  EXPECT_EQ(range.append(4_MiB), 10_MiB);
  expect_no_complaint();
}

TEST_F(MappedRangeUses, AHoleBetweenRetiredChunksIsFree) {
  MappedRangeOptions options = small(5ms);
  options.retire_queue = RetireQueue::create(machine_.driver());
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(2_MiB);
  range.map(6_MiB, 2_MiB);
  range.append(2_MiB);
  hold_back_work_on(range);
  range.unmap(0, 10_MiB);
  EXPECT_NO_THROW(range.map(2_MiB, 4_MiB));
  for (const std::size_t offset : {std::size_t{0}, 6_MiB, 8_MiB}) EXPECT_THROW(range.map(offset, 2_MiB), TimedOut);
  range.unmap(2_MiB, 4_MiB);  // retires within the others' hole
  RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
  EXPECT_NO_THROW(range.map(0, 10_MiB));
  expect_no_complaint();
}

TEST_F(MappedRangeUses, ARangeThatGoesRetiresWhatItHas) {
  const auto queue = RetireQueue::create(machine_.driver());
  {
    MappedRangeOptions options = small();
    options.retire_queue = queue;
    auto range = MappedRange::create(machine_.driver(), options);
    range.append(4_MiB);
    hold_back_work_on(range);
  }
  EXPECT_EQ(queue->pending(), 1u);
  RetirementMachine::open(word_);
  EXPECT_TRUE(queue->drain_for(60s));
  EXPECT_EQ(queue->pending(), 0u);
  expect_no_complaint();
}

TEST_F(MappedRangeUses, ARangeThatGoesWithoutAQueueWaits) {
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    RetirementMachine::open(word_);
  });
  {
    auto range = MappedRange::create(machine_.driver(), small());
    range.append(4_MiB);
    hold_back_work_on(range);
  }
  opener.join();
  expect_no_complaint();
}

TEST_F(MappedRangeUses, ARangeWhoseWorkDoesNotEndIsLeftAloneAndReported) {
  // Without threads, which would be left alone, too: what the range holds is never given back.
  RetirementMachine machine(strict_machine(emulator::Scheduler::stepped, 1));
  const CUstream stream = machine.stream();
  std::uint32_t* const word = machine.word();
  {
    auto range = MappedRange::create(machine.driver(), small(5ms));
    range.append(4_MiB);
    range.used_on(stream);
    machine.wait(stream, word);
    use(range, 0, stream);
  }
  const auto failures = clean_up_.take();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].kind, ErrorKind::timed_out);
  RetirementMachine::open(word);  // and the work ends well: its memory is there
  EXPECT_EQ(machine.api().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(MappedRangeUses, AFullQueueIsWaitedForWhenTheRangeGoes) {
  RetireQueueOptions tight;
  tight.max_pending = 1;
  tight.full_wait = 0s;
  const auto queue = RetireQueue::create(machine_.driver(), tight);
  std::thread opener;
  {
    MappedRangeOptions options = small();
    options.retire_queue = queue;
    auto range = MappedRange::create(machine_.driver(), options);
    range.append(8_MiB);
    hold_back_work_on(range);
    range.unmap(0, 2_MiB);
    EXPECT_THROW(range.unmap(2_MiB, 2_MiB), TimedOut);
    EXPECT_EQ(range.mapped_bytes(), 6_MiB) << "what could not be retired is still the range's";
    opener = std::thread([&] {
      std::this_thread::sleep_for(20ms);
      RetirementMachine::open(word_);
    });
  }
  opener.join();
  EXPECT_TRUE(queue->drain_for(60s));
  expect_no_complaint();
}

TEST_F(MappedRangeUses, ALackOfMemoryDrainsTheQueueFirst) {
  MappedRangeOptions options = small();
  PhysicalSourceOptions few;
  few.budgets = {{machine_.device().location(), 4_MiB}};
  options.source = PhysicalSource::create(machine_.driver(), few);
  options.retire_queue = RetireQueue::create(machine_.driver());
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(4_MiB);
  hold_back_work_on(range);
  range.unmap(0, 4_MiB);
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    RetirementMachine::open(word_);
  });
  range.map(16_MiB, 4_MiB);
  opener.join();
  expect_no_complaint();
}

TEST_F(MappedRangeUses, ARangeUsedInACaptureIsHeldUntilTheGraphIsGone) {
  auto range = MappedRange::create(machine_.driver(), small(5ms));
  range.append(2_MiB);
  machine_.begin_capture(stream_);
  const auto capture = range.used_on(stream_);
  ASSERT_TRUE(capture);
  use(range, 0, stream_);
  const CUgraph graph = machine_.end_capture(stream_);
  EXPECT_THROW(range.unmap(0, 2_MiB), InvalidUse) << "a graph may run at any time";
  EXPECT_EQ(range.mapped_bytes(), 2_MiB);
  call<EntryPoint::cuGraphDestroy>(machine_.api(), graph);
  range.uses().graph_gone(*capture);
  range.unmap(0, 2_MiB);
  expect_no_complaint();
}

TEST_F(MappedRangeUses, GrowingIsLegalDuringACapture) {
  for (const auto mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    auto range = MappedRange::create(machine_.driver(), small());
    range.append(2_MiB);
    const auto fresh = range.source()->acquire({}, 2_MiB);
    machine_.begin_capture(stream_, mode);
    range.append(2_MiB);
    range.replace(0, fresh);
    range.unmap(2_MiB, 2_MiB);
    call<EntryPoint::cuGraphDestroy>(machine_.api(), machine_.end_capture(stream_));
  }
  expect_no_complaint();
}

// --- The machine's work advances by seeded steps: use, exchange, unmap and growth interleave in every order.

void explore(std::uint64_t seed) {
  SafeRecordingHandler clean_up;
  {
    RetirementMachine machine(strict_machine(emulator::Scheduler::stepped, seed));
    std::mt19937_64 random(seed);
    MappedRangeOptions options = small();
    if (seed % 2 == 0) options.retire_queue = RetireQueue::create(machine.driver());
    auto range = MappedRange::create(machine.driver(), options);
    const CUstream streams[] = {machine.stream(), machine.stream(), nullptr};
    for (const CUstream each : streams) range.used_on(each);
    for (int step = 0; step < 16; ++step) {
      const auto chunks = range.chunks();
      const std::size_t draw = random() % 8;
      if (chunks.empty() || draw == 0) {
        range.append((1 + random() % 2) * 2_MiB);
        continue;
      }
      const ChunkInfo& chunk = chunks[random() % chunks.size()];
      if (draw <= 4) {
        call<EntryPoint::cuMemsetD8Async>(machine.api(), (range.address() + chunk.offset).value,
                                          static_cast<unsigned char>(step), 4096U, streams[random() % 3]);
      } else if (draw == 5) {
        range.unmap(chunk.offset, chunk.bytes);
      } else if (draw == 6) {
        range.replace(chunk.offset, range.source()->acquire({}, chunk.bytes));
      } else {
        range.truncate(chunk.offset);
      }
      if (options.retire_queue) options.retire_queue->poll();
    }
    MappedRange moved = std::move(range);
  }
  for (const Failure& each : clean_up.take()) ADD_FAILURE() << "seed " << seed << ": " << each.message();
}

TEST(MappedRangeExploration, C01_C02_NoOrderUnmapsUnderWork) {
  for (std::uint64_t seed = 0; seed < 2000 && !testing::Test::HasFailure(); ++seed) explore(seed);
}

TEST_F(MappedRangeUses, WhatAnObserverPinsBeforeUnmappingStays) {
  auto range = MappedRange::create(machine_.driver(), small());
  range.append(4_MiB);
  const auto fresh = range.source()->acquire({}, 2_MiB);
  RangePin pin;
  int stayed = 0;
  const auto observation = range.observe({.before_unmap = [&](std::size_t, std::size_t) { pin = range.pin("late"); },
                                          .after_map = [&](std::size_t, std::size_t) { ++stayed; }});
  int refused = 0;
  const auto expect_refusal = [&](auto&& change) {
    pin = {};
    EXPECT_THROW(change(), InvalidUse);
    EXPECT_EQ(range.mapped_bytes(), 4_MiB);
    EXPECT_EQ(stayed, ++refused);
  };
  expect_refusal([&] { range.unmap(0, 2_MiB); });
  expect_refusal([&] { range.truncate(0); });
  expect_refusal([&] { range.replace(0, fresh); });
  expect_refusal([&] { range.close(); });
  EXPECT_EQ(range.generation(), 0U);
  expect_no_complaint();
}

TEST_F(MappedRangeUses, WorkThatAnObserverGivesTheDeviceIsWaitedFor) {
  auto range = MappedRange::create(machine_.driver(), small());
  range.append(2_MiB);
  std::jthread opener;
  const auto observation = range.observe({.before_unmap =
                                              [&](std::size_t, std::size_t) {
                                                hold_back_work_on(range);
                                                opener = std::jthread([&] {
                                                  std::this_thread::sleep_for(20ms);
                                                  RetirementMachine::open(word_);
                                                });
                                              },
                                          .after_map = {}});
  range.unmap(0, 2_MiB);
  EXPECT_EQ(range.mapped_bytes(), 0U);
  expect_no_complaint();
}

// What an observer is told: of each byte that is to be unmapped, either that it is gone or that it stayed.
TEST_F(MappedRangeUses, ObserversHearOfEachByteWhetherItWentOrStayed) {
  auto range = std::make_optional(MappedRange::create(machine_.driver(), small()));
  range->append(10_MiB);
  range->unmap(4_MiB, 2_MiB);
  std::string heard;
  const auto tells = [&](std::string_view what) {
    return [&heard, what](std::size_t offset, std::size_t bytes) {
      heard += fmt::format("{} {}+{}, ", what, offset >> 20, bytes >> 20);
    };
  };
  const auto first = range->observe({.after_map = tells("there"), .after_unmap = tells("gone")});
  bool refuses = true;
  const auto second = range->observe({.before_unmap = [&](std::size_t, std::size_t) {
    if (refuses) throw std::runtime_error("in use");
  }});
  const auto expect_heard = [&](std::string_view expected) { EXPECT_EQ(std::exchange(heard, {}), expected); };
  EXPECT_THROW(range->truncate(0), std::runtime_error);
  expect_heard("there 0+4, there 6+4, ");
  refuses = false;
  range->replace(0, range->source()->acquire({}, 2_MiB));
  expect_heard("there 0+2, ");
  machine_.faults().inject({EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN});
  EXPECT_THROW(range->unmap(0, 2_MiB), Error);
  expect_heard("there 0+2, ");
  machine_.faults().inject({EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN});  // of both chunks at once
  machine_.faults().inject({EntryPoint::cuMemUnmap, 3, abi::CUDA_ERROR_UNKNOWN});  // of the second alone
  EXPECT_THROW(range->unmap(0, 4_MiB), Error);
  expect_heard("gone 0+2, there 2+2, ");
  range->unmap(0, 8_MiB);
  expect_heard("gone 2+2, gone 6+2, ");
  range.reset();
  expect_heard("gone 8+2, ");
}

TEST_F(MappedRangeUses, ObserversHearThatNothingIsThereWhereReplacingFailsAltogether) {
  auto range = MappedRange::create(machine_.driver(), small());
  range.append(2_MiB);
  int gone = 0;
  const auto observation = range.observe({.after_unmap = [&](std::size_t, std::size_t) { ++gone; }});
  const auto fresh = range.source()->acquire({}, 2_MiB);
  machine_.faults().inject({EntryPoint::cuMemMap, 1, abi::CUDA_ERROR_UNKNOWN, driver::FaultTiming::instead, true});
  EXPECT_THROW(range.replace(0, fresh), Error);
  machine_.faults().clear();
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(range.mapped_bytes(), 0U);
}

// What is retired is the range's no more, though it is unmapped later.
TEST_F(MappedRangeUses, ObserversHearWhatIsRetired) {
  auto options = small();
  options.retire_queue = RetireQueue::create(machine_.driver());
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(4_MiB);
  std::size_t gone = 0;
  const auto observation = range.observe({.after_unmap = [&](std::size_t, std::size_t bytes) { gone += bytes; }});
  range.unmap(0, 2_MiB);
  EXPECT_EQ(gone, 2_MiB);
  range.close();
  EXPECT_EQ(gone, 4_MiB);
}

}  // namespace
}  // namespace cuvmm
