// The codes expected here were seen on an H200 with driver 580 (CUDA 13.0), call by call.
#include <thread>

#include "execution_support.hpp"

namespace cuvmm::emulator::execution::test {
namespace {

using abi::CU_STREAM_CAPTURE_MODE_GLOBAL;
using abi::CU_STREAM_CAPTURE_MODE_RELAXED;
using abi::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
using Mode = abi::CUstreamCaptureMode;

class Captures : public ExecutionTest {
 protected:
  StreamPointer capturing(Mode mode = CU_STREAM_CAPTURE_MODE_GLOBAL, unsigned flags = abi::CU_STREAM_DEFAULT) {
    auto made = stream(flags);
    EXPECT_CODE(engine.begin_capture(made, mode), SUCCESS);
    EXPECT_CODE(engine.submit(made, nothing()), SUCCESS);
    return made;
  }
  void expect_good(const StreamPointer& captured, std::size_t nodes = 1) {
    GraphPointer graph;
    EXPECT_CODE(engine.end_capture(captured, graph), SUCCESS);
    ASSERT_TRUE(graph);
    EXPECT_EQ(graph->nodes.size(), nodes);
  }
  void expect_invalidated(const StreamPointer& captured) {
    EXPECT_EQ(status(captured), abi::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_CODE(engine.submit(captured, nothing()), ERROR_STREAM_CAPTURE_INVALIDATED);
    GraphPointer graph = std::make_shared<Graph>(0);
    EXPECT_CODE(engine.end_capture(captured, graph), ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_FALSE(graph);
    EXPECT_EQ(status(captured), abi::CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_CODE(engine.submit(captured, nothing()), SUCCESS);  // and the stream works again
  }
  abi::CUstreamCaptureStatus status(const StreamPointer& captured) {
    abi::CUstreamCaptureStatus found{};
    EXPECT_CODE(engine.is_capturing(captured, found), SUCCESS);
    return found;
  }
  EventPointer recorded_event() {
    auto made = event();
    EXPECT_CODE(engine.record_event(made, stream()), SUCCESS);
    return made;
  }
};

constexpr Mode all_modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              CU_STREAM_CAPTURE_MODE_RELAXED};
constexpr Mode strict_modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};

TEST_F(Captures, CollectOperationsInsteadOfRunningThem) {
  Journal journal;
  const auto one = stream();
  EXPECT_EQ(status(one), abi::CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_CODE(engine.begin_capture(one, CU_STREAM_CAPTURE_MODE_GLOBAL), SUCCESS);
  EXPECT_EQ(status(one), abi::CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_CODE(engine.submit(one, noting(journal, "captured")), SUCCESS);
  expect_good(one);
  EXPECT_EQ(status(one), abi::CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_CODE(engine.submit(one, noting(journal, "submitted")), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_EQ(journal.names(), std::vector<std::string>{"submitted"});
}

TEST_F(Captures, BeginOnceAndOnlyWhereAllowed) {
  const auto one = stream();
  EXPECT_CODE(engine.begin_capture(one, static_cast<Mode>(3)), ERROR_INVALID_VALUE);
  EXPECT_CODE(engine.begin_capture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.begin_capture(legacy(), CU_STREAM_CAPTURE_MODE_RELAXED), ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_CODE(engine.begin_capture(one, CU_STREAM_CAPTURE_MODE_GLOBAL), SUCCESS);
  EXPECT_CODE(engine.begin_capture(one, CU_STREAM_CAPTURE_MODE_GLOBAL), ERROR_ILLEGAL_STATE);
  expect_good(one, 0);
  EXPECT_CODE(engine.begin_capture(engine.per_thread_stream(context), CU_STREAM_CAPTURE_MODE_GLOBAL), SUCCESS);
  expect_good(engine.per_thread_stream(context), 0);
}

TEST_F(Captures, EndOnlyIfBegun) {
  GraphPointer graph = std::make_shared<Graph>(0);
  EXPECT_CODE(engine.end_capture(stream(), graph), ERROR_ILLEGAL_STATE);
  EXPECT_FALSE(graph);
  EXPECT_CODE(engine.end_capture(legacy(), graph), ERROR_ILLEGAL_STATE);
  expect_good(capturing());
}

TEST_F(Captures, MayBeginWhileEarlierWorkIsPending) {
  Gate gate;
  const auto one = stream();
  EXPECT_CODE(engine.submit(one, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.begin_capture(one, CU_STREAM_CAPTURE_MODE_GLOBAL), SUCCESS);
  expect_good(one, 0);
  gate.open();
}

TEST_F(Captures, ForbidObservingTheStreamInEveryMode) {
  for (const Mode mode : all_modes) {
    auto captured = capturing(mode);
    EXPECT_CODE(engine.query_stream(captured), ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(captured);
    captured = capturing(mode);
    EXPECT_CODE(engine.synchronize_stream(captured), ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CODE(engine.synchronize_stream(captured), ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(captured);
    captured = capturing(mode);
    EXPECT_CODE(engine.synchronize_context(context), ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(captured);
    captured = capturing(mode);
    EXPECT_CODE(engine.submit_and_wait(captured, nothing()), ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(captured);
    captured = capturing(mode);
    unsigned flags = 0;
    EXPECT_CODE(engine.stream_flags(captured, flags), ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(captured);
    EXPECT_CODE(engine.synchronize_stream(captured), SUCCESS);
    EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
  }
}

TEST_F(Captures, ForbidUnsafeCallsUnlessRelaxed) {
  const auto point = recorded_event();
  const auto other = stream();
  const std::vector<std::function<Answer()>> calls = {
      [&] { return engine.query_event(point); },  [&] { return engine.synchronize_event(point); },
      [&] { return engine.query_stream(other); }, [&] { return engine.synchronize_stream(other); },
      [&] { return engine.check_unsafe_call(); },
  };
  for (const auto& call : calls) {
    EXPECT_CODE(call(), SUCCESS);
    for (const Mode mode : strict_modes) {
      const auto captured = capturing(mode);
      EXPECT_CODE(call(), ERROR_STREAM_CAPTURE_UNSUPPORTED);
      expect_invalidated(captured);
    }
    const auto relaxed = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_CODE(call(), SUCCESS);
    expect_good(relaxed);
  }
}

TEST_F(Captures, AllowUnsafeCallsOfAThreadThatExchangedItsMode) {
  const auto point = recorded_event();
  for (const Mode mode : strict_modes) {
    const auto captured = capturing(mode);
    Mode exchanged = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_CODE(engine.exchange_capture_mode(exchanged), SUCCESS);
    EXPECT_EQ(exchanged, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_CODE(engine.query_event(point), SUCCESS);
    EXPECT_CODE(engine.check_unsafe_call(), SUCCESS);
    EXPECT_CODE(engine.exchange_capture_mode(exchanged), SUCCESS);
    EXPECT_EQ(exchanged, CU_STREAM_CAPTURE_MODE_RELAXED);
    expect_good(captured);
  }
}

TEST_F(Captures, ForbidUnsafeCallsOfOtherThreadsOnlyIfGlobal) {
  const auto in_thread = [&](Mode mode) {
    abi::CUresult code{};
    std::thread([&] {
      EXPECT_CODE(engine.exchange_capture_mode(mode), SUCCESS);
      code = engine.check_unsafe_call().code;
    }).join();
    return code;
  };
  auto captured = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(in_thread(CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(in_thread(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(in_thread(static_cast<Mode>(3)), CUDA_SUCCESS) << "a mode that does not exist";
  EXPECT_EQ(in_thread(CU_STREAM_CAPTURE_MODE_GLOBAL), abi::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_invalidated(captured);
  for (const Mode mode : {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    captured = capturing(mode);
    EXPECT_EQ(in_thread(CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    expect_good(captured);
  }
}

TEST_F(Captures, ForbidUnsafeCallsOfTheOwnThreadWhoseModeIsThreadLocal) {
  Mode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  EXPECT_CODE(engine.exchange_capture_mode(mode), SUCCESS);
  for (const Mode strict : strict_modes) {
    const auto captured = capturing(strict);
    EXPECT_CODE(engine.check_unsafe_call(), ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(captured);
  }
  const auto relaxed = capturing(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CODE(engine.check_unsafe_call(), SUCCESS);
  expect_good(relaxed);
}

TEST_F(Captures, OfABlockingStreamForbidTheLegacyStream) {
  const auto point = event();
  const std::vector<std::function<Answer()>> calls = {
      [&] { return engine.submit(legacy(), nothing()); },
      [&] { return engine.submit_and_wait(legacy(), nothing()); },
      [&] { return engine.record_event(point, legacy()); },
      [&] { return engine.wait_event(legacy(), point); },
      [&] { return engine.query_stream(legacy()); },
      [&] { return engine.synchronize_stream(legacy()); },
      [&] { return engine.begin_capture(legacy(), CU_STREAM_CAPTURE_MODE_RELAXED); },
  };
  for (const auto& call : calls) {
    for (const Mode mode : all_modes) {
      const auto captured = capturing(mode, abi::CU_STREAM_DEFAULT);
      EXPECT_CODE(call(), ERROR_STREAM_CAPTURE_IMPLICIT);
      expect_invalidated(captured);
    }
  }
  for (std::size_t i = 0; i + 1 < calls.size(); ++i) {
    const auto free = capturing(CU_STREAM_CAPTURE_MODE_RELAXED, abi::CU_STREAM_NON_BLOCKING);
    EXPECT_CODE(calls[i](), SUCCESS);
    expect_good(free);
  }
  const auto captured = capturing();
  const auto other = engine.create_context();
  EXPECT_CODE(engine.submit(engine.legacy_stream(other), nothing()), SUCCESS);  // another context's
  EXPECT_CODE(engine.submit(stream(abi::CU_STREAM_DEFAULT), nothing()), SUCCESS);
  expect_good(captured);
}

TEST_F(Captures, AreNotSpoiledByAskingForTheStatusOfTheLegacyStream) {
  const auto captured = capturing();
  abi::CUstreamCaptureStatus found = abi::CU_STREAM_CAPTURE_STATUS_ACTIVE;
  CaptureInfo info;
  EXPECT_CODE(engine.is_capturing(legacy(), found), ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(found, abi::CU_STREAM_CAPTURE_STATUS_ACTIVE);  // untouched
  EXPECT_CODE(engine.capture_info(legacy(), info), ERROR_STREAM_CAPTURE_IMPLICIT);
  expect_good(captured);
  EXPECT_EQ(status(legacy()), abi::CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Captures, TellAboutThemselves) {
  CaptureInfo info;
  const auto one = stream();
  EXPECT_CODE(engine.capture_info(one, info), SUCCESS);
  EXPECT_EQ(info.status, abi::CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_CODE(engine.begin_capture(one, CU_STREAM_CAPTURE_MODE_GLOBAL), SUCCESS);
  EXPECT_CODE(engine.submit(one, nothing()), SUCCESS);
  EXPECT_CODE(engine.submit(one, nothing()), SUCCESS);
  EXPECT_CODE(engine.capture_info(one, info), SUCCESS);
  EXPECT_EQ(info.status, abi::CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_TRUE(info.graph);
  EXPECT_TRUE(engine.being_captured(info.graph));
  ASSERT_EQ(info.dependencies.size(), 1U);
  EXPECT_EQ(info.dependencies[0], info.graph->nodes[1].get());
  GraphPointer graph;
  EXPECT_CODE(engine.end_capture(one, graph), SUCCESS);
  EXPECT_EQ(graph, info.graph);
  EXPECT_FALSE(engine.being_captured(graph));

  const auto first_id = info.id;
  const auto again = capturing();
  EXPECT_CODE(engine.capture_info(again, info), SUCCESS);
  EXPECT_NE(info.id, first_id);
  EXPECT_CODE(engine.query_stream(again), ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_CODE(engine.capture_info(again, info), SUCCESS);
  EXPECT_EQ(info.status, abi::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_FALSE(info.graph);
  expect_invalidated(again);
}

TEST_F(Captures, EndInTheThreadThatBeganThemUnlessRelaxed) {
  const auto end_elsewhere = [&](const StreamPointer& captured) {
    abi::CUresult code{};
    std::thread([&] {
      GraphPointer graph;
      code = engine.end_capture(captured, graph).code;
      EXPECT_EQ(graph != nullptr, code == CUDA_SUCCESS);
    }).join();
    return code;
  };
  for (const Mode mode : strict_modes) {
    const auto captured = capturing(mode);
    EXPECT_EQ(end_elsewhere(captured), abi::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT_EQ(status(captured), abi::CU_STREAM_CAPTURE_STATUS_NONE);  // lost
    GraphPointer graph;
    EXPECT_CODE(engine.end_capture(captured, graph), ERROR_ILLEGAL_STATE);
    expect_good(capturing(mode));
  }
  EXPECT_EQ(end_elsewhere(capturing(CU_STREAM_CAPTURE_MODE_RELAXED)), CUDA_SUCCESS);
}

TEST_F(Captures, TakeOperationsFromAnyThread) {
  const auto captured = capturing();
  std::thread([&] { EXPECT_CODE(engine.submit(captured, nothing()), SUCCESS); }).join();
  expect_good(captured, 2);
}

class Forks : public Captures {
 protected:
  // Captures in `first`, and forks to `second`.
  void fork() {
    EXPECT_CODE(engine.begin_capture(first, CU_STREAM_CAPTURE_MODE_GLOBAL), SUCCESS);
    EXPECT_CODE(engine.submit(first, nothing()), SUCCESS);
    EXPECT_CODE(engine.record_event(forked, first), SUCCESS);
    EXPECT_CODE(engine.wait_event(second, forked), SUCCESS);
  }
  void join() {
    EXPECT_CODE(engine.record_event(joined, second), SUCCESS);
    EXPECT_CODE(engine.wait_event(first, joined), SUCCESS);
  }
  abi::CUresult end(const StreamPointer& captured) { return engine.end_capture(captured, graph).code; }

  StreamPointer first = stream(abi::CU_STREAM_DEFAULT);
  StreamPointer second = stream(abi::CU_STREAM_DEFAULT);
  EventPointer forked = event();
  EventPointer joined = event();
  GraphPointer graph;
};

TEST_F(Forks, JoinToADiamond) {
  fork();
  EXPECT_EQ(status(second), abi::CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_CODE(engine.submit(second, nothing()), SUCCESS);
  EXPECT_CODE(engine.submit(first, nothing()), SUCCESS);
  join();
  EXPECT_CODE(engine.submit(first, nothing()), SUCCESS);
  EXPECT_EQ(end(first), CUDA_SUCCESS);
  ASSERT_EQ(graph->nodes.size(), 4U);
  EXPECT_EQ(graph->nodes[1]->dependencies, std::vector<const GraphNode*>{graph->nodes[0].get()});
  EXPECT_EQ(graph->nodes[2]->dependencies, std::vector<const GraphNode*>{graph->nodes[0].get()});
  EXPECT_EQ(graph->nodes[3]->dependencies,
            (std::vector<const GraphNode*>{graph->nodes[2].get(), graph->nodes[1].get()}));
  EXPECT_EQ(status(second), abi::CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Forks, AreUnjoinedWithoutTheWaitBack) {
  fork();
  EXPECT_CODE(engine.submit(second, nothing()), SUCCESS);
  EXPECT_EQ(end(first), abi::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_FALSE(graph);
  EXPECT_EQ(status(first), abi::CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(status(second), abi::CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Forks, AreUnjoinedIfWorkFollowsTheJoin) {
  fork();
  EXPECT_CODE(engine.submit(second, nothing()), SUCCESS);
  join();
  EXPECT_CODE(engine.submit(second, nothing()), SUCCESS);
  EXPECT_EQ(end(first), abi::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

TEST_F(Forks, NeedNoJoinWithoutWork) {
  fork();
  EXPECT_EQ(end(first), CUDA_SUCCESS);
  EXPECT_EQ(status(second), abi::CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Forks, EndInTheFirstStreamOnly) {
  fork();
  EXPECT_EQ(end(second), abi::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_FALSE(graph);
  expect_invalidated(first);
}

TEST_F(Forks, StayUnjoinedIfTheStreamIsDestroyed) {
  fork();
  EXPECT_CODE(engine.submit(second, nothing()), SUCCESS);
  EXPECT_CODE(engine.destroy_stream(second), SUCCESS);
  EXPECT_EQ(end(first), abi::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

TEST_F(Forks, EndWithTheFirstStream) {
  fork();
  EXPECT_CODE(engine.destroy_stream(first), SUCCESS);
  EXPECT_EQ(status(second), abi::CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Forks, OutliveTheirEvents) {
  fork();
  EXPECT_CODE(engine.destroy_event(forked), SUCCESS);
  forked.reset();
  EXPECT_CODE(engine.submit(second, nothing()), SUCCESS);
  join();
  EXPECT_EQ(end(first), CUDA_SUCCESS);
  EXPECT_EQ(graph->nodes.size(), 2U);
}

TEST_F(Forks, CannotReachTheLegacyStream) {
  fork();
  EXPECT_CODE(engine.wait_event(legacy(), forked), ERROR_STREAM_CAPTURE_IMPLICIT);
  expect_invalidated(first);
}

TEST_F(Captures, AreIsolatedFromEventsOutside) {
  const auto outside = recorded_event();
  auto captured = capturing();
  EXPECT_CODE(engine.wait_event(captured, outside), ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_CODE(engine.wait_event(captured, outside), ERROR_STREAM_CAPTURE_INVALIDATED);
  expect_invalidated(captured);
  captured = capturing();
  EXPECT_CODE(engine.wait_event(captured, event()), SUCCESS);  // never recorded
  EXPECT_CODE(engine.wait_event(captured, outside, abi::CU_EVENT_WAIT_EXTERNAL), SUCCESS);
  expect_good(captured, 2);
}

TEST_F(Captures, CannotBeMerged) {
  const auto one = capturing();
  const auto two = capturing();
  const auto point = event();
  EXPECT_CODE(engine.record_event(point, two), SUCCESS);
  EXPECT_CODE(engine.wait_event(one, point), ERROR_STREAM_CAPTURE_MERGE);
  expect_invalidated(one);
  expect_invalidated(two);
}

TEST_F(Captures, KeepTheirEventsFromBeingObserved) {
  for (const Mode mode : all_modes) {
    for (const bool wait : {false, true}) {
      const auto captured = capturing(mode);
      const auto point = event();
      EXPECT_CODE(engine.record_event(point, captured), SUCCESS);
      float milliseconds = 0;
      EXPECT_CODE(engine.elapsed_time(point, point, milliseconds), ERROR_CAPTURED_EVENT);
      EXPECT_EQ(status(captured), abi::CU_STREAM_CAPTURE_STATUS_ACTIVE);
      EXPECT_CODE(wait ? engine.synchronize_event(point) : engine.query_event(point), ERROR_CAPTURED_EVENT);
      expect_invalidated(captured);
    }
  }
}

TEST_F(Captures, LeaveTheirEventsUselessUntilRecordedAgain) {
  const auto captured = capturing();
  const auto point = event();
  EXPECT_CODE(engine.record_event(point, captured), SUCCESS);
  expect_good(captured);
  float milliseconds = 0;
  EXPECT_CODE(engine.query_event(point), ERROR_INVALID_VALUE);
  EXPECT_CODE(engine.synchronize_event(point), ERROR_INVALID_VALUE);
  EXPECT_CODE(engine.wait_event(stream(), point), ERROR_INVALID_VALUE);
  EXPECT_CODE(engine.elapsed_time(point, point, milliseconds), ERROR_INVALID_VALUE);
  const auto later = capturing();
  EXPECT_CODE(engine.wait_event(later, point), ERROR_INVALID_VALUE);
  expect_invalidated(later);
  EXPECT_CODE(engine.record_event(point, captured), SUCCESS);
  EXPECT_CODE(engine.synchronize_event(point), SUCCESS);
  EXPECT_CODE(engine.elapsed_time(point, point, milliseconds), SUCCESS);
}

TEST_F(Captures, EndWithTheirContext) {
  const auto other = engine.create_context();
  const auto captured = stream_in(other);
  EXPECT_CODE(engine.begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), SUCCESS);
  EXPECT_CODE(engine.check_unsafe_call(), ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_CODE(engine.destroy_context(other), SUCCESS);
  EXPECT_CODE(engine.check_unsafe_call(), SUCCESS);
}

}  // namespace
}  // namespace cuvmm::emulator::execution::test
