#include "cuvmm/stream_uses.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>

#include "retirement.hpp"

namespace cuvmm {
namespace {

using namespace test;

class StreamUsesTest : public testing::Test {
 protected:
  void expect_no_failure() { EXPECT_TRUE(handler_.take().empty()); }

  SafeRecordingHandler handler_;
  RetirementMachine machine_;
  StreamUses uses_{machine_.driver()};
};

bool mentions(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(StreamUsesTest, WhatNobodyUsedIsDone) {
  machine_.calls();
  PendingWork work = uses_.so_far();
  EXPECT_TRUE(work.is_done());
  EXPECT_TRUE(work.wait_for(0s));
  EXPECT_TRUE(PendingWork().is_done());
  EXPECT_EQ(machine_.calls().total(), 0u);
}

TEST_F(StreamUsesTest, WorkGivenBeforeAndAfterTheStreamWasNamedIsWaitedFor) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const first = machine_.word();
  std::uint32_t* const second = machine_.word();
  machine_.wait(stream, first);
  EXPECT_EQ(uses_.used_on(stream), std::nullopt);
  PendingWork before = uses_.so_far();
  machine_.wait(stream, second);
  PendingWork after = uses_.so_far();
  EXPECT_FALSE(before.is_done());
  RetirementMachine::open(first);
  EXPECT_TRUE(before.wait_for(60s));
  EXPECT_FALSE(after.is_done()) << "more work was given to the stream";
  RetirementMachine::open(second);
  EXPECT_TRUE(after.wait_for(60s));
  EXPECT_TRUE(before.is_done());
  EXPECT_TRUE(after.is_done());
}

TEST_F(StreamUsesTest, AllStreamsAreWaitedFor) {
  const CUstream quick = machine_.stream(), slow = machine_.stream();
  std::uint32_t* const word = machine_.word();
  for (const bool slow_first : {true, false}) {
    std::atomic_ref(*word).store(0);
    StreamUses uses(machine_.driver());
    uses.used_on(slow_first ? slow : quick);
    uses.used_on(slow_first ? quick : slow);
    machine_.wait(slow, word);
    PendingWork work = uses.so_far();
    EXPECT_FALSE(work.is_done());
    RetirementMachine::open(word);
    EXPECT_TRUE(work.wait_for(60s));
  }
}

TEST_F(StreamUsesTest, AWaitEndsAtItsDeadlineAndTellsHowMuchIsOpen) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const word = machine_.word();
  machine_.wait(stream, word);
  uses_.used_on(stream);
  PendingWork work = uses_.so_far();
  const Result<void> waited = work.wait_for(1ms);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.failure().kind, ErrorKind::timed_out);
  EXPECT_TRUE(mentions(waited.failure().message(), "1 stream or event is")) << waited.failure().message();
  RetirementMachine::open(word);
  EXPECT_TRUE(work.wait_for(std::chrono::nanoseconds::max()));
}

TEST_F(StreamUsesTest, AForgottenStreamIsWaitedForUpToThatMomentAndMayBeDestroyed) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const word = machine_.word();
  std::uint32_t* const later = machine_.word();
  machine_.wait(stream, word);
  uses_.used_on(stream);
  uses_.no_longer_used_on(stream);
  machine_.wait(stream, later);
  machine_.destroy(stream);
  PendingWork work = uses_.so_far();
  EXPECT_FALSE(work.is_done());
  RetirementMachine::open(word);
  EXPECT_TRUE(work.wait_for(60s)) << "what came later is not waited for";
  RetirementMachine::open(later);
  uses_.no_longer_used_on(machine_.stream());  // one that was never named
  machine_.calls();
  EXPECT_TRUE(uses_.so_far().is_done());
  EXPECT_EQ(machine_.calls()[EntryPoint::cuEventRecord], 0u);
  expect_no_failure();
}

TEST_F(StreamUsesTest, ManyForgottenStreamsDoNotPileUpEvents) {
  machine_.calls();
  for (int round = 0; round < 200; ++round) {
    const CUstream stream = machine_.stream();
    uses_.used_on(stream);
    uses_.no_longer_used_on(stream);
    machine_.destroy(stream);
  }
  EXPECT_LE(machine_.calls()[EntryPoint::cuEventCreate], 40u);
}

TEST_F(StreamUsesTest, TheCallersEventStandsForWhatItStoodForThen) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const word = machine_.word();
  std::uint32_t* const later = machine_.word();
  CUevent event = nullptr;
  call<EntryPoint::cuEventCreate>(machine_.api(), &event, 0U);
  machine_.wait(stream, word);
  call<EntryPoint::cuEventRecord>(machine_.api(), event, stream);
  EXPECT_EQ(uses_.used_until(event), std::nullopt);
  machine_.wait(stream, later);
  call<EntryPoint::cuEventRecord>(machine_.api(), event, stream);
  call<EntryPoint::cuEventDestroy>(machine_.api(), event);
  PendingWork work = uses_.so_far();
  EXPECT_FALSE(work.is_done());
  RetirementMachine::open(word);
  EXPECT_TRUE(work.wait_for(60s));
  RetirementMachine::open(later);
  EXPECT_THROW(uses_.used_until(nullptr), InvalidUse);
  expect_no_failure();
}

TEST_F(StreamUsesTest, AnEventNeedsACurrentContext) {
  CUevent event = nullptr;
  call<EntryPoint::cuEventCreate>(machine_.api(), &event, 0U);
  call<EntryPoint::cuEventRecord>(machine_.api(), event, nullptr);
  std::thread([&] {
    EXPECT_THROW(uses_.used_until(event), InvalidUse);
    EXPECT_THROW(uses_.used_on(nullptr), InvalidUse);
    const CurrentContext context(machine_.device());
    EXPECT_NO_THROW(uses_.used_until(event));
    EXPECT_NO_THROW(uses_.used_on(nullptr));
  }).join();
  EXPECT_TRUE(uses_.so_far().wait_for(60s));
}

TEST_F(StreamUsesTest, DefaultStreamsAreThoseOfTheContextAndThreadThatNamedThem) {
  std::uint32_t* const word = machine_.word();
  for (const CUstream stream : {CUstream{nullptr}, legacy_stream(), per_thread_stream()}) {
    std::atomic_ref(*word).store(0);
    StreamUses uses(machine_.driver());
    uses.used_on(stream);
    machine_.wait(stream, word);
    PendingWork work;
    // Another thread, in which another context is current.
    std::thread([&] {
      const CurrentContext context(machine_.driver().device(DeviceOrdinal{1}));
      machine_.calls();
      work = uses.so_far();
      EXPECT_EQ(machine_.calls()[EntryPoint::cuEventRecord], 1u) << "in the right context at once";
      EXPECT_FALSE(work.is_done());
      CUcontext current = nullptr;
      call<EntryPoint::cuCtxGetCurrent>(machine_.api(), &current);
      EXPECT_EQ(current, context.handle());
    }).join();
    EXPECT_FALSE(work.is_done());
    RetirementMachine::open(word);
    EXPECT_TRUE(work.wait_for(60s));
  }
}

TEST_F(StreamUsesTest, TheDefaultStreamOfAThreadThatHasEndedIsNotThatOfItsSuccessor) {
  std::uint32_t* const word = machine_.word();
  std::thread([&] {
    const CurrentContext context(machine_.device());
    uses_.used_on(per_thread_stream());
    machine_.wait(per_thread_stream(), word);
  }).join();
  PendingWork work;
  std::thread([&] {  // most likely of the same id
    const CurrentContext context(machine_.device());
    work = uses_.so_far();
    EXPECT_FALSE(work.is_done());
  })
      .join();
  RetirementMachine::open(word);
  EXPECT_TRUE(work.wait_for(60s));
}

TEST_F(StreamUsesTest, TheStreamsOfTwoDevicesAreWaitedForWithoutAContext) {
  std::uint32_t* const word = machine_.word();
  const CUstream first = machine_.stream();
  CUstream second = nullptr;
  {
    const CurrentContext context(machine_.driver().device(DeviceOrdinal{1}));
    second = machine_.stream();
    machine_.wait(second, word);
    // The context would end with this block, were it not for the work in it.
    uses_.used_on(second);
  }
  uses_.used_on(first);
  std::thread([&] {
    PendingWork work = uses_.so_far();
    EXPECT_FALSE(work.is_done());
    RetirementMachine::open(word);
    EXPECT_TRUE(work.wait_for(60s));
    CUcontext current = nullptr;
    call<EntryPoint::cuCtxGetCurrent>(machine_.api(), &current);
    EXPECT_EQ(current, nullptr);
  }).join();
  expect_no_failure();
}

TEST_F(StreamUsesTest, MergedWorkIsDoneWhenBothAre) {
  const CUstream first = machine_.stream(), second = machine_.stream();
  std::uint32_t* const word = machine_.word();
  StreamUses others(machine_.driver());
  uses_.used_on(first);
  others.used_on(second);
  machine_.wait(second, word);
  PendingWork work = uses_.so_far();
  work.merge(others.so_far());
  work.merge(PendingWork());
  EXPECT_FALSE(work.is_done());
  RetirementMachine::open(word);
  EXPECT_TRUE(work.wait_for(60s));

  const Driver another = Driver::emulated(strict_machine());
  const CurrentContext context(another.device(DeviceOrdinal{0}));
  StreamUses foreign(another);
  foreign.used_on(nullptr);
  PendingWork foreign_work = foreign.so_far();
  const auto merge = [&](PendingWork& into) { into.merge(std::move(foreign_work)); };
  EXPECT_THROW(merge(work), InvalidUse);
  PendingWork empty;
  EXPECT_NO_THROW(merge(empty)) << "nothing was taken when it was refused";
  EXPECT_TRUE(empty.wait_for(60s));
}

TEST_F(StreamUsesTest, AskingTakesTheFewestCalls) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const word = machine_.word();
  uses_.used_on(stream);
  EXPECT_TRUE(uses_.so_far().wait_for(60s));  // the event is made here
  machine_.wait(stream, word);

  machine_.calls();
  PendingWork work = uses_.so_far();
  const driver::CallCounts recorded = machine_.calls();
  EXPECT_EQ(recorded[EntryPoint::cuEventRecord], 1u);
  EXPECT_EQ(recorded[EntryPoint::cuStreamGetCaptureInfo], 1u);
  EXPECT_EQ(recorded.total(), 2u);

  EXPECT_FALSE(work.is_done());
  const driver::CallCounts asked = machine_.calls();
  EXPECT_EQ(asked[EntryPoint::cuEventQuery], 1u);
  EXPECT_EQ(asked[EntryPoint::cuThreadExchangeStreamCaptureMode], 2u);
  EXPECT_EQ(asked.total(), 3u);
  RetirementMachine::open(word);
  EXPECT_TRUE(work.wait_for(60s));
  machine_.calls();
  EXPECT_TRUE(work.is_done());
  uses_.used_on(stream);
  const driver::CallCounts after = machine_.calls();
  EXPECT_EQ(after[EntryPoint::cuStreamGetCaptureInfo], 1u);
  EXPECT_EQ(after.total(), 1u);
}

// Captures.

class CaptureModes : public StreamUsesTest, public testing::WithParamInterface<CUstreamCaptureMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, CaptureModes,
                         testing::Values(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                         CU_STREAM_CAPTURE_MODE_RELAXED));

TEST_P(CaptureModes, AnOpenCaptureStaysValidAndHoldsWhatItUses) {
  const CUstream captured = machine_.stream(), other = machine_.stream();
  std::uint32_t* const word = machine_.word();
  machine_.wait(other, word);
  uses_.used_on(other);
  machine_.begin_capture(captured, GetParam());
  const std::optional<CaptureId> capture = uses_.used_on(captured);
  ASSERT_TRUE(capture);
  PendingWork work = uses_.so_far();
  EXPECT_FALSE(work.is_done());
  std::thread([&] { EXPECT_FALSE(work.is_done()); }).join();
  EXPECT_EQ(work.held_captures(), std::vector{*capture});
  StreamUses unheld(machine_.driver());
  unheld.used_on(other);
  PendingWork other_work = unheld.so_far();
  EXPECT_FALSE(other_work.is_done()) << "asked while the capture is open";
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  call<EntryPoint::cuThreadExchangeStreamCaptureMode>(machine_.api(), &mode);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the thread's mode is as before";
  call<EntryPoint::cuThreadExchangeStreamCaptureMode>(machine_.api(), &mode);
  const CUgraph graph = machine_.end_capture(captured);

  RetirementMachine::open(word);
  const Result<void> waited = work.wait_for(60s);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.failure().kind, ErrorKind::invalid_use);
  EXPECT_TRUE(mentions(waited.failure().way_out, "graph_gone"));
  call<EntryPoint::cuGraphDestroy>(machine_.api(), graph);
  uses_.graph_gone(*capture);
  EXPECT_TRUE(work.wait_for(60s));
  EXPECT_TRUE(uses_.so_far().wait_for(60s)) << "it is not held again";
  EXPECT_TRUE(other_work.wait_for(60s));
  expect_no_failure();
}

TEST_P(CaptureModes, AStreamCapturedAfterItWasNamedIsHeldAndItsEarlierWorkWaitedFor) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const word = machine_.word();
  uses_.used_on(stream);
  machine_.wait(stream, word);
  machine_.begin_capture(stream, GetParam());
  PendingWork work = uses_.so_far();
  EXPECT_FALSE(work.is_done());
  ASSERT_EQ(work.held_captures().size(), 1u);
  const CaptureId capture = work.held_captures()[0];
  call<EntryPoint::cuGraphDestroy>(machine_.api(), machine_.end_capture(stream));
  EXPECT_TRUE(work.graph_gone(capture));
  EXPECT_FALSE(work.graph_gone(capture)) << "told once";
  EXPECT_FALSE(work.is_done()) << "what the stream was given before the capture still runs";
  const Result<void> waited = work.wait_for(1ms);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.failure().kind, ErrorKind::timed_out);
  RetirementMachine::open(word);
  EXPECT_TRUE(work.wait_for(60s));
  expect_no_failure();
}

TEST_P(CaptureModes, TheLegacyStreamIsNotRecordedInWhileABlockingStreamIsCaptured) {
  const CUstream blocking = machine_.stream(0);
  uses_.used_on(nullptr);
  machine_.begin_capture(blocking, GetParam());
  EXPECT_EQ(uses_.used_on(nullptr), std::nullopt);
  PendingWork work = uses_.so_far();
  EXPECT_FALSE(work.is_done());
  EXPECT_TRUE(work.held_captures().empty());
  machine_.end_capture(blocking);
  EXPECT_TRUE(work.wait_for(60s));
  expect_no_failure();
}

TEST_P(CaptureModes, AStreamCannotBeForgottenWhileItIsCaptured) {
  const CUstream stream = machine_.stream(0);
  for (const CUstream each : {stream, CUstream{nullptr}}) {  // the legacy stream would wait for the captured one
    uses_.used_on(each);
    machine_.begin_capture(stream, GetParam());
    try {
      uses_.no_longer_used_on(each);
      ADD_FAILURE() << "not refused";
    } catch (const InvalidUse& refused) {
      EXPECT_TRUE(mentions(refused.way_out(), "End the capture")) << refused.what();
    }
    machine_.end_capture(stream);
    EXPECT_NO_THROW(uses_.no_longer_used_on(each));
  }
}

TEST_P(CaptureModes, AnEventOfACaptureStandsForTheCaptureAndLeavesItValid) {
  const CUstream stream = machine_.stream();
  CUevent event = nullptr;
  call<EntryPoint::cuEventCreate>(machine_.api(), &event, 0U);
  machine_.begin_capture(stream, GetParam());
  call<EntryPoint::cuEventRecord>(machine_.api(), event, stream);
  const std::optional<CaptureId> of_event = uses_.used_until(event);
  ASSERT_TRUE(of_event);
  EXPECT_EQ(of_event, StreamUses(machine_.driver()).used_on(stream));
  machine_.end_capture(stream);
  PendingWork work = uses_.so_far();
  EXPECT_EQ(work.held_captures(), std::vector{*of_event});
  uses_.graph_gone(*of_event);
  EXPECT_TRUE(work.wait_for(60s));
  expect_no_failure();
}

TEST_F(StreamUsesTest, ACaptureIsNamedOnce) {
  const CUstream stream = machine_.stream();
  machine_.begin_capture(stream);
  const std::optional<CaptureId> capture = uses_.used_on(stream);
  ASSERT_TRUE(capture);
  const Result<void> waited = uses_.so_far().wait_for(0s);
  ASSERT_FALSE(waited);
  const std::string captures = "held for captures: " + std::to_string(capture->value);
  EXPECT_TRUE(mentions(waited.failure().arguments, captures)) << waited.failure().arguments;
  EXPECT_FALSE(mentions(waited.failure().arguments, captures + ",")) << waited.failure().arguments;
  call<EntryPoint::cuGraphDestroy>(machine_.api(), machine_.end_capture(stream));
}

TEST_F(StreamUsesTest, AStreamForgottenAfterACaptureIsNotNeededAnyMore) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const word = machine_.word();
  uses_.used_on(stream);
  machine_.wait(stream, word);
  machine_.begin_capture(stream);
  PendingWork work = uses_.so_far();
  machine_.end_capture(stream);
  uses_.no_longer_used_on(stream);
  machine_.destroy(stream);
  uses_.graph_gone(work.held_captures().at(0));
  EXPECT_FALSE(work.is_done());
  RetirementMachine::open(word);
  EXPECT_TRUE(work.wait_for(60s));
}

// Contexts.

TEST_F(StreamUsesTest, APrimaryContextIsKeptAsLongAsWorkOfItIsOpen) {
  RetirementMachine& machine = machine_;
  const Device second = machine.driver().device(DeviceOrdinal{1});
  const auto active = [&] {
    unsigned flags = 0;
    int state = 0;
    call<EntryPoint::cuDevicePrimaryCtxGetState>(machine.api(), second.handle(), &flags, &state);
    return state != 0;
  };
  std::uint32_t* const word = machine.word();
  PendingWork work;
  {
    StreamUses uses(machine.driver());
    const CurrentContext context(second);
    const CUstream stream = machine.stream();
    machine.wait(stream, word);
    uses.used_on(stream);
    work = uses.so_far();
  }
  EXPECT_TRUE(active());
  EXPECT_FALSE(work.is_done()) << "the work did not end with its owner's interest";
  RetirementMachine::open(word);
  EXPECT_TRUE(work.wait_for(60s));
  work = PendingWork();
  EXPECT_TRUE(RetireQueue::create(machine.driver())->drain_for(60s));
  EXPECT_FALSE(active());
  expect_no_failure();
}

TEST_F(StreamUsesTest, LookingForThePrimaryContextDoesNotMakeOne) {
  CreatedContext created(machine_, 1);
  const CUstream stream = created.stream();
  machine_.calls();
  uses_.used_on(stream);
  EXPECT_TRUE(uses_.so_far().wait_for(60s));
  EXPECT_EQ(machine_.calls()[EntryPoint::cuDevicePrimaryCtxRetain], 0u);
  created.destroy();
}

TEST_F(StreamUsesTest, WorkOfADestroyedContextIsOver) {
  std::uint32_t* const word = machine_.word();
  CreatedContext created(machine_);
  const CUstream stream = created.stream();
  machine_.wait(stream, word);
  uses_.used_on(stream);
  PendingWork recorded = uses_.so_far();
  EXPECT_FALSE(recorded.is_done());
  created.destroy();
  machine_.calls();
  EXPECT_TRUE(recorded.is_done());
  EXPECT_TRUE(uses_.so_far().is_done()) << "recorded in a stream of the destroyed context";
  EXPECT_NO_THROW(uses_.no_longer_used_on(stream));
  const driver::CallCounts calls = machine_.calls();
  for (const EntryPoint harmful : {EntryPoint::cuStreamGetCaptureInfo, EntryPoint::cuEventRecord,
                                   EntryPoint::cuStreamGetCtx, EntryPoint::cuCtxPushCurrent})
    EXPECT_EQ(calls[harmful], 0u) << "the real driver crashes in " << driver::name(harmful);
  expect_no_failure();
}

TEST_F(StreamUsesTest, ADestroyedContextIsNotMadeCurrentToAskForItsWork) {
  std::uint32_t* const word = machine_.word();
  CreatedContext created(machine_);
  const CUstream stream = created.stream();
  machine_.wait(stream, word);
  uses_.used_on(stream);
  PendingWork recorded = uses_.so_far();
  EXPECT_FALSE(recorded.is_done());
  machine_.faults().inject({EntryPoint::cuEventQuery, 1, CUDA_ERROR_INVALID_CONTEXT});
  machine_.calls();
  EXPECT_FALSE(recorded.is_done());
  EXPECT_EQ(machine_.faults().injected(), 1u);
  EXPECT_EQ(machine_.calls()[EntryPoint::cuCtxPushCurrent], 1u) << "a living context is asked again";
  created.destroy();
  machine_.faults().inject({EntryPoint::cuEventQuery, 1, CUDA_ERROR_INVALID_CONTEXT});
  machine_.calls();
  EXPECT_TRUE(recorded.is_done());
  EXPECT_EQ(machine_.faults().injected(), 2u);
  EXPECT_EQ(machine_.calls()[EntryPoint::cuCtxPushCurrent], 0u) << "harms the real driver";
  expect_no_failure();
}

TEST_F(StreamUsesTest, ACreatedContextMayBeDestroyedOnceItsStreamsAreForgottenAndItsWorkIsDone) {
  CreatedContext created(machine_);
  const CUstream stream = created.stream();
  uses_.used_on(stream);
  PendingWork work = uses_.so_far();
  EXPECT_TRUE(work.wait_for(60s));
  uses_.no_longer_used_on(stream);
  EXPECT_TRUE(uses_.so_far().wait_for(60s));
  work = PendingWork();
  EXPECT_TRUE(uses_.so_far().is_done());
  const driver::CallCounts calls = machine_.calls();
  EXPECT_GE(calls[EntryPoint::cuEventCreate], 1u);
  EXPECT_EQ(calls[EntryPoint::cuEventDestroy], calls[EntryPoint::cuEventCreate]) << "no event of it is kept";
  created.destroy();
  expect_no_failure();
}

// What a process that was forked from the driver's sees of it.
TEST_F(StreamUsesTest, WithoutADriverNothingIsWaitedFor) {
  CreatedContext created(machine_);
  std::uint32_t* const word = machine_.word();
  for (const bool of_created : {false, true})
    for (const CUresult answer : {CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_SYSTEM_NOT_READY}) {
      const CUstream stream = of_created ? created.stream() : machine_.stream();
      machine_.wait(stream, word);
      StreamUses uses(machine_.driver());
      uses.used_on(stream);
      PendingWork recorded = uses.so_far();
      ASSERT_FALSE(recorded.is_done());
      machine_.faults().inject({std::nullopt, 1, answer, driver::FaultTiming::instead, true});
      PendingWork unrecorded = uses.so_far();
      const bool no_driver = answer != CUDA_ERROR_SYSTEM_NOT_READY;
      EXPECT_EQ(static_cast<bool>(recorded.wait_for(20ms)), no_driver) << answer << of_created;
      EXPECT_EQ(static_cast<bool>(unrecorded.wait_for(20ms)), no_driver) << answer << of_created;
      machine_.faults().clear();
    }
  RetirementMachine::open(word);
  expect_no_failure();
}

TEST_F(StreamUsesTest, AResetContextsEventsAreNotUsedAgain) {
  {
    const CUstream stream = machine_.stream();
    uses_.used_on(stream);
    PendingWork several[] = {uses_.so_far(), uses_.so_far(), uses_.so_far()};
    for (PendingWork& each : several) EXPECT_TRUE(each.wait_for(60s));
    uses_.no_longer_used_on(stream);
  }
  EXPECT_TRUE(uses_.so_far().wait_for(60s));
  call<EntryPoint::cuDevicePrimaryCtxReset>(machine_.api(), 0);
  const CurrentContext again(machine_.device());
  std::uint32_t* const gate = machine_.word();
  const CUstream stream = machine_.stream();
  machine_.wait(stream, gate);
  uses_.used_on(stream);
  machine_.calls();
  PendingWork work = uses_.so_far();
  EXPECT_EQ(machine_.calls()[EntryPoint::cuEventCreate], 1u) << "the idle events were of the context's former life";
  EXPECT_FALSE(work.is_done());
  RetirementMachine::open(gate);
  EXPECT_TRUE(work.wait_for(60s));
  expect_no_failure();
}

TEST_F(StreamUsesTest, AStreamDestroyedWithoutNoticeIsNotTakenForDone) {
  const CUstream stream = machine_.stream();
  uses_.used_on(stream);
  machine_.destroy(stream);
  PendingWork work = uses_.so_far();
  EXPECT_FALSE(work.is_done());
  const Result<void> waited = work.wait_for(1ms);
  ASSERT_FALSE(waited);
  EXPECT_TRUE(mentions(waited.failure().message(), "INVALID_HANDLE")) << waited.failure().message();
}

class FaultedContext : public testing::Test {
 protected:
  // A kernel whose memory goes while it runs, which faithful mode lets happen.
  FaultedContext() {
    const CUstream stream = machine_.stream();
    const CUfunction spin = machine_.kernel(gpu::SpinParameters::kernel);
    const Mapping mapping = machine_.mapped();
    uses_.used_on(stream);
    machine_.spin(spin, mapping, stream);
    work_ = uses_.so_far();
  }
  static emulator::Configuration faithful() {
    emulator::Configuration configuration = strict_machine();
    configuration.mode = emulator::Mode::faithful;
    configuration.on_warning = [](const std::string&) {};
    return configuration;
  }
  bool done_at_last(PendingWork& work) {
    for (int tries = 0; tries < 60000; ++tries) {
      if (work.is_done()) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }

  SafeRecordingHandler handler_;
  RetirementMachine machine_{faithful()};
  StreamUses uses_{machine_.driver()};
  PendingWork work_;
};

TEST_F(FaultedContext, IsOverAndToldOnceToTheHandler) {
  handler_.take();
  EXPECT_TRUE(done_at_last(work_));
  EXPECT_TRUE(uses_.so_far().is_done()) << "nothing can be recorded, and nothing runs";
  const std::vector<Failure> told = handler_.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, ErrorKind::device_lost);
  EXPECT_EQ(told[0].code_name, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

TEST_F(FaultedContext, IsOverAndReturnedByAWait) {
  handler_.take();
  const Result<void> waited = work_.wait_for(60s);
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.failure().kind, ErrorKind::device_lost);
  EXPECT_TRUE(work_.is_done());
  EXPECT_TRUE(handler_.take().empty()) << "not told twice";
}

// A kernel that runs, and cannot be ended, until it is told.
struct SlowKernel {
  std::atomic<bool> runs = false, end = false;

  emulator::HostKernel kernel() {
    return {"slow",
            {sizeof(CUdeviceptr)},
            [](const emulator::KernelArguments& arguments) {
              return std::vector<emulator::KernelView>{{arguments.get<CUdeviceptr>(0), 4096, true}};
            },
            [this](const emulator::KernelCall&) {
              runs = true;
              while (!end) std::this_thread::sleep_for(1ms);
              return emulator::KernelProgress::done;
            }};
  }
};

TEST(FaultedContextInStrictMode, IsOverOnlyWhenNothingRunsInIt) {
  SafeRecordingHandler handler;
  SlowKernel slow;
  emulator::Configuration configuration = strict_machine();
  configuration.kernels.push_back(slow.kernel());
  RetirementMachine machine(configuration);
  const auto queue = RetireQueue::create(machine.driver());
  const auto unmapped = AddressReservation::create(machine.driver(), 2_MiB);
  const CUstream stream = machine.stream(), failing = machine.stream();
  const CUfunction running = machine.kernel("slow"), spin = machine.kernel(gpu::SpinParameters::kernel);
  StreamUses uses(machine.driver());
  uses.used_on(stream);
  {
    Mapping mapping = machine.mapped();
    CUdeviceptr address = mapping.address().value;
    void* arguments[] = {&address};
    call<EntryPoint::cuLaunchKernel>(machine.api(), running, 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream, arguments, nullptr);
    while (!slow.runs) std::this_thread::yield();
    queue->retire(std::move(mapping), uses.so_far(), 2_MiB);
  }
  gpu::SpinParameters parameters{unmapped.address().value, 1};
  auto arguments = gpu::arguments(parameters);
  call<EntryPoint::cuLaunchKernel>(machine.api(), spin, 1U, 1U, 1U, 1U, 1U, 1U, 0U, failing, arguments.data(), nullptr);
  while (machine.api().cuStreamQuery(failing) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  std::thread ender([&] {
    std::this_thread::sleep_for(20ms);
    slow.end = true;
  });
  EXPECT_TRUE(queue->drain_for(60s));
  ender.join();
  const std::vector<Failure> told = handler.take();
  ASSERT_EQ(told.size(), 1u) << "the failure of the context, and none of an unmap";
  EXPECT_EQ(told[0].kind, ErrorKind::device_lost);
}

// Host functions.

TEST_F(StreamUsesTest, WithinAHostFunctionTheRecordIsPutOff) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const word = machine_.word();
  uses_.used_on(stream);
  struct Inside {
    StreamUses& uses;
    CUstream stream;
    std::optional<PendingWork> work{};
    Result<void> waited{};
    bool done = true;
    bool refused = false;
  } inside{uses_, stream};
  call<EntryPoint::cuLaunchHostFunc>(
      machine_.api(), stream,
      [](void* data) {
        auto& self = *static_cast<Inside*>(data);
        self.work = self.uses.so_far();
        self.done = self.work->is_done();
        self.waited = self.work->wait_for(60s);
        try {
          self.uses.no_longer_used_on(self.stream);
        } catch (const NotPermitted&) {
          self.refused = true;
        }
      },
      &inside);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream);
  EXPECT_FALSE(inside.done);
  EXPECT_TRUE(inside.refused);
  ASSERT_FALSE(inside.waited);
  EXPECT_EQ(inside.waited.failure().kind, ErrorKind::not_permitted);
  machine_.wait(stream, word);
  EXPECT_FALSE(inside.work->is_done()) << "recorded now, so it waits for what was given since, too";
  RetirementMachine::open(word);
  EXPECT_TRUE(inside.work->wait_for(60s));
  expect_no_failure();
}

// Failing calls.

TEST_F(StreamUsesTest, ADriverThatWantsAContextForARecordOrAQuestionGetsIt) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const word = machine_.word();
  machine_.wait(stream, word);
  uses_.used_on(stream);
  std::thread([&] {
    machine_.calls();
    machine_.faults().inject({EntryPoint::cuEventRecord, 1, CUDA_ERROR_INVALID_CONTEXT});
    PendingWork work = uses_.so_far();
    EXPECT_EQ(machine_.calls()[EntryPoint::cuEventRecord], 1u) << "not put off";
    EXPECT_EQ(machine_.faults().injected(), 1u);
    machine_.faults().inject({EntryPoint::cuEventQuery, 1, CUDA_ERROR_INVALID_CONTEXT});
    EXPECT_FALSE(work.is_done());
    EXPECT_EQ(machine_.faults().injected(), 2u);
    RetirementMachine::open(word);
    EXPECT_TRUE(work.wait_for(60s));
  }).join();
}

TEST_F(StreamUsesTest, ARecordThatFailsIsMadeLater) {
  const CUstream stream = machine_.stream();
  std::uint32_t* const word = machine_.word();
  for (const EntryPoint entry :
       {EntryPoint::cuEventCreate, EntryPoint::cuEventRecord, EntryPoint::cuStreamGetCaptureInfo,
        EntryPoint::cuEventQuery, EntryPoint::cuThreadExchangeStreamCaptureMode}) {
    std::atomic_ref(*word).store(0);
    uses_.used_on(stream);
    machine_.wait(stream, word);
    machine_.faults().inject({entry, 1, CUDA_ERROR_OUT_OF_MEMORY});
    PendingWork work = uses_.so_far();
    EXPECT_FALSE(work.is_done()) << driver::name(entry);
    EXPECT_FALSE(work.is_done()) << driver::name(entry);
    RetirementMachine::open(word);
    EXPECT_TRUE(work.wait_for(60s)) << driver::name(entry);
    machine_.faults().clear();
  }
}

}  // namespace
}  // namespace cuvmm
