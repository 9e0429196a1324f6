#include "cuvmm/retire_queue.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "retirement.hpp"

namespace cuvmm {
namespace {

using namespace test;

// Tells when it is destroyed; what was moved from tells nothing.
class Owner {
 public:
  explicit Owner(std::function<void()> on_end) : on_end_(std::move(on_end)) {}
  Owner(Owner&& other) noexcept : on_end_(std::exchange(other.on_end_, nullptr)) {}
  Owner& operator=(Owner&&) = delete;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (on_end_) on_end_();
  }
  [[nodiscard]] bool owns() const { return static_cast<bool>(on_end_); }

 private:
  std::function<void()> on_end_;
};

class RetireQueueTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(handler_.take().empty()); }

  Owner owner(int number) {
    return Owner([this, number] { released_.push_back(number); });
  }
  // A stream whose work waits for the word, and that work.
  PendingWork held_back(std::uint32_t* word) {
    const CUstream stream = machine_.stream();
    machine_.wait(stream, word);
    StreamUses uses(machine_.driver());
    uses.used_on(stream);
    return uses.so_far();
  }
  PendingWork captured(CaptureId* id) {
    const CUstream stream = machine_.stream();
    machine_.begin_capture(stream);
    StreamUses uses(machine_.driver());
    *id = uses.used_on(stream).value();
    call<EntryPoint::cuGraphDestroy>(machine_.api(), machine_.end_capture(stream));
    return uses.so_far();
  }

  SafeRecordingHandler handler_;
  std::vector<int> released_;
  RetirementMachine machine_;
  std::shared_ptr<RetireQueue> queue_ = RetireQueue::create(machine_.driver());
};

// What they are after a refusal is looked at by its caller.
void retire(RetireQueue& queue, Owner& owner, PendingWork& work) {
  queue.retire(std::move(owner), std::move(work));
}

bool mentions(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(RetireQueueTest, RefusesOptionsOutOfRange) {
  const auto create = [&](RetireQueueOptions options) { return RetireQueue::create(machine_.driver(), options); };
  EXPECT_THROW(create({.max_pending = 0}), InvalidUse);
  EXPECT_THROW(create({.full_wait = -1ns}), InvalidUse);
  EXPECT_THROW(create({.drain_wait = -1ns}), InvalidUse);
  EXPECT_NO_THROW(create({.max_pending = 1, .full_wait = 0ns, .drain_wait = 0ns}));
}

TEST_F(RetireQueueTest, WhatIsDoneIsReleasedAtOnce) {
  machine_.calls();
  queue_->retire(owner(1), PendingWork());
  queue_->retire_call([&] { released_.push_back(2); }, PendingWork());
  EXPECT_EQ(released_, (std::vector{1, 2}));
  EXPECT_EQ(queue_->pending(), 0u);
  EXPECT_EQ(machine_.calls().total(), 0u);
}

TEST_F(RetireQueueTest, KeepsOwnersUntilTheirWorkIsDone) {
  std::uint32_t* const word = machine_.word();
  queue_->retire(owner(1), held_back(word), 100);
  queue_->retire_call([&] { released_.push_back(2); }, held_back(word), 20);
  EXPECT_EQ(queue_->poll(), 0u);
  EXPECT_EQ(queue_->pending(), 2u);
  EXPECT_EQ(queue_->pending_bytes(), 120u);
  EXPECT_TRUE(released_.empty());
  RetirementMachine::open(word);
  call<EntryPoint::cuCtxSynchronize>(machine_.api());  // both are done: their streams end in any order
  EXPECT_TRUE(queue_->drain_for(60s));
  EXPECT_EQ(released_, (std::vector{1, 2})) << "in the order of their retirement";
  EXPECT_EQ(queue_->pending(), 0u);
  EXPECT_EQ(queue_->pending_bytes(), 0u);
}

TEST_F(RetireQueueTest, NothingIsStuckBehindWorkThatIsNotItsOwn) {
  std::uint32_t* const slow = machine_.word();
  std::uint32_t* const quick = machine_.word();
  queue_->retire(owner(1), held_back(slow));
  queue_->retire(owner(2), held_back(quick));
  RetirementMachine::open(quick);
  while (queue_->pending() == 2 && queue_->poll() == 0) std::this_thread::yield();
  EXPECT_EQ(released_, std::vector{2});
  const Result<void> drained = queue_->drain_for(1ms);
  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.failure().kind, ErrorKind::timed_out);
  EXPECT_TRUE(mentions(drained.failure().arguments, "pending = 1")) << drained.failure().arguments;
  RetirementMachine::open(slow);
  EXPECT_TRUE(queue_->drain_for(60s));
}

TEST_F(RetireQueueTest, AFullQueueWaitsForRoomAndLosesNothing) {
  const auto small = RetireQueue::create(machine_.driver(), {.max_pending = 1, .full_wait = 1ms});
  std::uint32_t* const first = machine_.word();
  std::uint32_t* const second = machine_.word();
  small->retire(owner(1), held_back(first));
  Owner kept = owner(2);
  PendingWork work = held_back(second);
  EXPECT_THROW(retire(*small, kept, work), TimedOut);
  // A failure takes neither. NOLINTBEGIN(clang-analyzer-cplusplus.Move)
  EXPECT_TRUE(kept.owns());
  EXPECT_FALSE(work.is_done()) << "the work is the caller's still";
  // NOLINTEND(clang-analyzer-cplusplus.Move)
  EXPECT_TRUE(released_.empty());
  EXPECT_EQ(small->pending(), 1u);
  RetirementMachine::open(first);
  while (kept.owns()) {
    try {
      retire(*small, kept, work);
    } catch (const TimedOut&) {
    }
  }
  EXPECT_EQ(released_, std::vector{1});
  EXPECT_EQ(small->pending(), 1u);
  RetirementMachine::open(second);
  EXPECT_TRUE(small->drain_for(60s));
  EXPECT_EQ(released_, (std::vector{1, 2}));
}

TEST_F(RetireQueueTest, RetiringIntoAFullQueueWaits) {
  const auto small = RetireQueue::create(machine_.driver(), {.max_pending = 1, .full_wait = 60s});
  std::uint32_t* const first = machine_.word();
  std::uint32_t* const second = machine_.word();
  small->retire(owner(1), held_back(first));
  PendingWork work = held_back(second);
  std::thread opener([&] { RetirementMachine::open(first); });
  small->retire(owner(2), std::move(work));
  EXPECT_EQ(released_, std::vector{1});
  opener.join();
  RetirementMachine::open(second);
  EXPECT_TRUE(small->drain_for(60s));
}

TEST_F(RetireQueueTest, ReclaimGivesBackAsMuchAsAskedForAndThere) {
  std::uint32_t* const word = machine_.word();
  std::uint32_t* const never = machine_.word();
  for (int number = 1; number <= 3; ++number) queue_->retire(owner(number), held_back(word), 10);
  queue_->retire(owner(4), held_back(never), 10);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  EXPECT_EQ(queue_->reclaim(10, now()), 0u);
  RetirementMachine::open(word);
  std::size_t given_back = queue_->reclaim(10, now() + 60s);
  EXPECT_GE(given_back, 10u);
  if (given_back < 30) given_back += queue_->reclaim(30 - given_back, now() + 60s);
  EXPECT_EQ(given_back, 30u);
  EXPECT_EQ(queue_->reclaim(11, now() + 1ms), 0u);
  RetirementMachine::open(never);
  EXPECT_EQ(queue_->reclaim(11, now() + 60s), 10u) << "more is not there";
  EXPECT_EQ(queue_->reclaim(1, now() + 60s), 0u) << "an empty queue is not waited for";
}

TEST_F(RetireQueueTest, OwnersMayCallTheQueueAgain) {
  std::uint32_t* const word = machine_.word();
  std::uint32_t* const other = machine_.word();
  queue_->retire(Owner([&] {
                   queue_->retire(owner(2), held_back(other));
                   EXPECT_EQ(queue_->poll(), 0u);
                   EXPECT_FALSE(queue_->drain_for(1ms)) << "what it retired is not done";
                   EXPECT_GE(queue_->pending(), 2u) << "itself and what it retired";
                   RetirementMachine::open(other);
                   EXPECT_TRUE(queue_->drain_for(60s)) << "it does not wait for itself";
                 }),
                 held_back(word));
  RetirementMachine::open(word);
  EXPECT_TRUE(queue_->drain_for(60s));
  EXPECT_EQ(released_, std::vector{2});
}

TEST_F(RetireQueueTest, ADrainEndsWhenWhatOtherThreadsReleaseIsReleased) {
  std::uint32_t* const word = machine_.word();
  std::atomic<bool> releasing = false, go_on = false;
  queue_->retire(Owner([&] {
                   releasing = true;
                   while (!go_on) std::this_thread::yield();
                 }),
                 held_back(word), 10);
  RetirementMachine::open(word);
  std::thread other([&] { EXPECT_TRUE(queue_->drain_for(60s)); });
  while (!releasing) std::this_thread::yield();
  EXPECT_FALSE(queue_->drain_for(1ms));
  EXPECT_EQ(queue_->pending(), 1u);
  EXPECT_EQ(queue_->pending_bytes(), 10u);
  go_on = true;
  EXPECT_TRUE(queue_->drain_for(60s));
  EXPECT_EQ(queue_->pending(), 0u);
  other.join();
}

TEST_F(RetireQueueTest, OwnersThatDrainInTwoThreadsDoNotWaitForEachOther) {
  std::uint32_t* const first = machine_.word();
  std::uint32_t* const second = machine_.word();
  std::atomic<int> releasing = 0;
  std::atomic<int> drained = 0;
  const auto draining = [&] {
    return Owner([&] {
      ++releasing;
      while (releasing < 2) std::this_thread::yield();
      if (queue_->drain_for(5s)) ++drained;
    });
  };
  PendingWork works[] = {held_back(first), held_back(second)};
  queue_->retire(draining(), std::move(works[0]));
  RetirementMachine::open(first);
  std::thread other([&] { EXPECT_TRUE(queue_->drain_for(60s)); });
  while (releasing < 1) std::this_thread::yield();
  queue_->retire(draining(), std::move(works[1]));
  RetirementMachine::open(second);
  EXPECT_TRUE(queue_->drain_for(60s));
  other.join();
  EXPECT_EQ(drained, 2);
  EXPECT_EQ(queue_->pending(), 0u);
}

TEST_F(RetireQueueTest, AnExceptionOfWhatIsCalledIsReported) {
  queue_->retire_call([] { throw std::runtime_error("no"); }, PendingWork());
  queue_->retire_call(
      [] {
        Failure failure;
        failure.call = "mine";
        raise(failure);
      },
      PendingWork());
  const std::vector<Failure> told = handler_.take();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].callback, "RetireQueue::retire_call(callable)");
  EXPECT_EQ(told[0].rule, "no");
  EXPECT_EQ(told[1].callback, "RetireQueue::retire_call(callable)");
  EXPECT_EQ(told[1].call, "mine");
}

TEST_F(RetireQueueTest, WhatHasNothingToCallIsRefused) {
  EXPECT_THROW(queue_->retire_call(std::function<void()>(), PendingWork()), InvalidUse);
  void (*none)() = nullptr;
  EXPECT_THROW(queue_->retire_call(std::move(none), PendingWork()), InvalidUse);
  int calls = 0;
  queue_->retire_call(std::function<void()>([&] { ++calls; }), PendingWork());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(handler_.take().empty());
}

TEST_F(RetireQueueTest, RefusesWorkOfAnotherDriver) {
  RetirementMachine other;
  StreamUses uses(other.driver());
  uses.used_on(nullptr);
  PendingWork work = uses.so_far();
  Owner kept = owner(1);
  EXPECT_THROW(retire(*queue_, kept, work), InvalidUse);
  EXPECT_TRUE(kept.owns());  // NOLINT(clang-analyzer-cplusplus.Move): a failure does not take it
  const auto of_other = RetireQueue::create(other.driver());
  retire(*of_other, kept, work);
  EXPECT_TRUE(of_other->drain_for(60s));
  EXPECT_EQ(released_, std::vector{1});
}

TEST_F(RetireQueueTest, ItsDestructorDrains) {
  std::uint32_t* const word = machine_.word();
  queue_->retire(owner(1), held_back(word));
  std::thread opener([&] { RetirementMachine::open(word); });
  queue_.reset();
  EXPECT_EQ(released_, std::vector{1});
  opener.join();
}

TEST_F(RetireQueueTest, WhatIsNotDoneInTimeIsLeakedAndReported) {
  std::uint32_t* const word = machine_.word();
  auto impatient = RetireQueue::create(machine_.driver(), {.drain_wait = 1ms});
  impatient->retire(owner(1), held_back(word), 7);
  impatient.reset();
  EXPECT_TRUE(released_.empty());
  const std::vector<Failure> told = handler_.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].call, "~RetireQueue");
  EXPECT_EQ(told[0].kind, ErrorKind::timed_out);
  EXPECT_TRUE(mentions(told[0].arguments, "pending = 1, bytes = 7")) << told[0].arguments;
  RetirementMachine::open(word);
}

TEST_F(RetireQueueTest, WhatACaptureHoldsWaitsForItsGraphToGo) {
  CaptureId capture;
  queue_->retire(owner(1), captured(&capture), 10);
  EXPECT_EQ(queue_->poll(), 0u);
  const Result<void> drained = queue_->drain_for(60s);
  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.failure().kind, ErrorKind::invalid_use);
  EXPECT_TRUE(mentions(drained.failure().way_out, "graph_gone"));
  EXPECT_EQ(queue_->reclaim(10, std::chrono::steady_clock::now() + 60s), 0u) << "at once";
  queue_->graph_gone(CaptureId{capture.value + 1});
  EXPECT_EQ(queue_->poll(), 0u) << "another capture's graph";
  queue_->graph_gone(capture);
  EXPECT_TRUE(queue_->drain_for(60s));
  EXPECT_EQ(released_, std::vector{1});
}

TEST_F(RetireQueueTest, WhatACaptureHoldsIsLeakedAtTheEnd) {
  CaptureId capture;
  bool released = false;
  queue_->retire_call([&released] { released = true; }, captured(&capture));
  queue_.reset();
  EXPECT_FALSE(released);
  const std::vector<Failure> told = handler_.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(mentions(told[0].arguments, "held for captures = 1")) << told[0].arguments;
}

TEST_F(RetireQueueTest, MemoryRetiredDuringACaptureIsUnmappedWhileItStaysValid) {
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    const CUstream stream = machine_.stream(), capturing = machine_.stream();
    Mapping mapping = machine_.mapped();
    StreamUses uses(machine_.driver());
    uses.used_on(stream);
    machine_.begin_capture(capturing, mode);
    machine_.use(mapping, stream);
    machine_.calls();
    queue_->retire(std::move(mapping), uses.so_far(), 2_MiB);
    EXPECT_TRUE(queue_->drain_for(60s));
    EXPECT_EQ(machine_.calls()[EntryPoint::cuMemUnmap], 1u);
    machine_.end_capture(capturing);
  }
}

TEST_F(RetireQueueTest, AGraphsMemoryStaysUntilTheGraphIsGone) {
  const CUstream stream = machine_.stream();
  Mapping mapping = machine_.mapped();
  StreamUses uses(machine_.driver());
  machine_.begin_capture(stream);
  const CaptureId capture = uses.used_on(stream).value();
  machine_.use(mapping, stream);
  const CUgraph graph = machine_.end_capture(stream);
  CUgraphExec exec = nullptr;
  call<EntryPoint::cuGraphInstantiateWithFlags>(machine_.api(), &exec, graph, 0ULL);
  queue_->retire(std::move(mapping), uses.so_far(), 2_MiB);
  call<EntryPoint::cuGraphLaunch>(machine_.api(), exec, stream);
  EXPECT_EQ(queue_->poll(), 0u);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream);
  call<EntryPoint::cuGraphExecDestroy>(machine_.api(), exec);
  call<EntryPoint::cuGraphDestroy>(machine_.api(), graph);
  queue_->graph_gone(capture);
  EXPECT_TRUE(queue_->drain_for(60s));
}

TEST_F(RetireQueueTest, TakesTheFewestCallsOnceItIsWarm) {
  const CUstream stream = machine_.stream();
  StreamUses uses(machine_.driver());
  uses.used_on(stream);
  std::uint32_t* const word = machine_.word();
  for (int round = 0; round < 10; ++round) {
    std::atomic_ref(*word).store(0);
    machine_.wait(stream, word);
    machine_.calls();
    for (int entry = 0; entry < 5; ++entry) queue_->retire(owner(round), uses.so_far());
    EXPECT_EQ(queue_->poll(), 0u);
    const driver::CallCounts calls = machine_.calls();
    EXPECT_EQ(calls[EntryPoint::cuEventCreate], round == 0 ? 5u : 0u) << round;
    EXPECT_EQ(calls[EntryPoint::cuEventRecord], 5u) << "one for each stream and retirement";
    EXPECT_EQ(calls[EntryPoint::cuStreamGetCaptureInfo], 5u);
    EXPECT_EQ(calls[EntryPoint::cuEventQuery], 10u) << "one for each when retired, and when polled";
    EXPECT_EQ(calls[EntryPoint::cuThreadExchangeStreamCaptureMode], 12u) << "twice for each retirement and poll";
    EXPECT_TRUE(round == 0 || calls.total() == 32u) << calls.total();
    RetirementMachine::open(word);
    while (queue_->pending() > 0)
      if (queue_->poll() == 0) std::this_thread::yield();
  }
}

TEST_F(RetireQueueTest, WithTwoDevicesEachWaitsForItsOwn) {
  std::uint32_t* const word = machine_.word();
  const CurrentContext context(machine_.driver().device(DeviceOrdinal{1}));
  const CUstream on_second = machine_.stream();
  Mapping mapping = machine_.mapped();
  machine_.wait(on_second, word);
  machine_.use(mapping, on_second);
  StreamUses uses(machine_.driver());
  uses.used_on(on_second);
  std::thread([&, work = uses.so_far()]() mutable {
    queue_->retire(std::move(mapping), std::move(work), 2_MiB);
    EXPECT_EQ(queue_->poll(), 0u);
    RetirementMachine::open(word);
    EXPECT_TRUE(queue_->drain_for(60s));
  }).join();
}

TEST_F(RetireQueueTest, ACreatedContextMayBeDestroyedAfterADrain) {
  CreatedContext created(machine_);
  const CUstream stream = created.stream();
  Mapping mapping = machine_.mapped();
  {
    StreamUses uses(machine_.driver());
    uses.used_on(stream);
    machine_.use(mapping, stream);
    queue_->retire(std::move(mapping), uses.so_far(), 2_MiB);
  }
  EXPECT_TRUE(queue_->drain_for(60s));
  created.destroy();
  EXPECT_TRUE(queue_->drain_for(0s));
}

// The cases that this is for.

TEST_F(RetireQueueTest, C01_MemoryRetiredFromAnotherThreadStaysUntilTheKernelHasEnded) {
  const CUfunction kernel = machine_.kernel(gpu::SpinParameters::kernel);
  const CUstream stream = machine_.stream(), other = machine_.stream();
  for (int round = 0; round < 20; ++round) {
    Mapping mapping = machine_.mapped();
    const CUdeviceptr flag = mapping.address().value;
    StreamUses uses(machine_.driver());
    uses.used_on(stream);
    uses.used_on(other);
    machine_.spin(kernel, mapping, stream);
    std::thread([&] {
      queue_->retire(std::move(mapping), uses.so_far(), 2_MiB);
      EXPECT_EQ(queue_->poll(), 0u) << "the kernel waits for its flag";
    }).join();
    EXPECT_EQ(queue_->pending(), 1u);
    call<EntryPoint::cuStreamWriteValue32>(machine_.api(), other, flag, 1U, 0U);
    call<EntryPoint::cuStreamSynchronize>(machine_.api(), other);
    EXPECT_TRUE(queue_->drain_for(60s));
  }
  EXPECT_EQ(machine_.api().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(RetireQueueTest, C02_MemoryRetiredFromAHostFunctionRightAfterTheLaunchIsUnmappedLater) {
  const CUstream stream = machine_.stream();
  struct Round {
    Round(RetireQueue& queue_, const Driver& driver, Mapping mapping_)
        : queue(queue_), uses(driver), mapping(std::move(mapping_)) {}

    RetireQueue& queue;
    StreamUses uses;
    std::optional<Mapping> mapping;
  };
  std::vector<std::unique_ptr<Round>> rounds;
  for (int number = 0; number < 200; ++number) {
    rounds.push_back(std::make_unique<Round>(*queue_, machine_.driver(), machine_.mapped()));
    Round& round = *rounds.back();
    round.uses.used_on(stream);
    machine_.use(*round.mapping, stream);
    call<EntryPoint::cuLaunchHostFunc>(
        machine_.api(), stream,
        [](void* data) {
          auto& self = *static_cast<Round*>(data);
          self.queue.retire(*std::exchange(self.mapping, std::nullopt), self.uses.so_far(), 2_MiB);
        },
        &round);
    queue_->poll();
  }
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream);
  EXPECT_TRUE(queue_->drain_for(60s));
  for (const auto& round : rounds) EXPECT_FALSE(round->mapping);
}

TEST_F(RetireQueueTest, AFullQueueDoesNotWaitWithinAHostFunction) {
  const auto small = RetireQueue::create(machine_.driver(), {.max_pending = 1, .full_wait = 60s});
  std::uint32_t* const word = machine_.word();
  small->retire(owner(1), held_back(word));
  struct Inside {
    RetireQueue& queue;
    PendingWork work;
    bool refused = false;
    Result<void> drained{};
  } inside{*small, held_back(word)};
  const CUstream stream = machine_.stream();
  call<EntryPoint::cuLaunchHostFunc>(
      machine_.api(), stream,
      [](void* data) {
        auto& self = *static_cast<Inside*>(data);
        try {
          self.queue.retire_call([] {}, std::move(self.work));
        } catch (const NotPermitted&) {
          self.refused = true;
        }
        self.drained = self.queue.drain_for(60s);
      },
      &inside);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream);
  EXPECT_TRUE(inside.refused);
  ASSERT_FALSE(inside.drained);
  EXPECT_EQ(inside.drained.failure().kind, ErrorKind::not_permitted);
  RetirementMachine::open(word);
  EXPECT_TRUE(small->drain_for(60s));
}

TEST_F(RetireQueueTest, C50_NoLockIsHeldWhileTheDriverIsCalledAndEachEntryIsAskedByOneThread) {
  std::uint32_t* const word = machine_.word();
  queue_->retire(owner(1), held_back(word), 10);
  machine_.holding().hold(EntryPoint::cuEventQuery);
  std::thread asking([&] { EXPECT_EQ(queue_->poll(), 1u); });
  machine_.holding().await_arrival();
  machine_.calls();
  RetirementMachine::open(word);
  for (int tries = 0; tries < 10; ++tries) EXPECT_EQ(queue_->poll(), 0u);
  EXPECT_EQ(machine_.calls()[EntryPoint::cuEventQuery], 0u) << "another thread is asking";
  EXPECT_EQ(queue_->pending(), 1u);
  EXPECT_EQ(queue_->pending_bytes(), 10u);
  queue_->retire(owner(2), PendingWork());
  queue_->graph_gone(CaptureId{1});
  EXPECT_FALSE(queue_->drain_for(1ms));
  // The held call is let go only when the device has certainly done the work.
  call<EntryPoint::cuCtxSynchronize>(machine_.api());
  machine_.holding().let_go();
  asking.join();
  EXPECT_EQ(released_, (std::vector{2, 1}));
}

TEST_F(RetireQueueTest, ManyThreadsRetireAndPollAtOnce) {
  constexpr int threads = 4, rounds = 50;
  const auto small = RetireQueue::create(machine_.driver(), {.max_pending = 8, .full_wait = 60s});
  std::atomic<int> released = 0;
  std::vector<std::thread> all;
  all.reserve(threads);
  for (int number = 0; number < threads; ++number)
    all.emplace_back([&, number] {
      const CurrentContext context(machine_.driver().device(DeviceOrdinal{number % 2}));
      const CUstream stream = machine_.stream();
      StreamUses uses(machine_.driver());
      uses.used_on(stream);
      for (int round = 0; round < rounds; ++round) {
        Mapping mapping = machine_.mapped();
        machine_.use(mapping, stream);
        small->retire_call([&released, kept = std::move(mapping)] { ++released; }, uses.so_far(), 2_MiB);
        if (round % 7 == 0) static_cast<void>(small->drain_for(60s));
        EXPECT_LE(small->pending_bytes(), 64 * 2_MiB);
      }
      uses.no_longer_used_on(stream);
      machine_.destroy(stream);
    });
  for (std::thread& each : all) each.join();
  EXPECT_TRUE(small->drain_for(60s));
  EXPECT_EQ(released, threads * rounds);
  EXPECT_EQ(small->pending_bytes(), 0u);
}

}  // namespace
}  // namespace cuvmm
