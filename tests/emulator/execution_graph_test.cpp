#include <atomic>
#include <thread>

#include "execution_support.hpp"

namespace cuvmm::emulator::execution::test {
namespace {

using Names = std::vector<std::string>;

class Graphs : public ExecutionTest {
 protected:
  explicit Graphs(const Scheduling& scheduling = {}) : ExecutionTest(scheduling) {}

  void begin(const StreamPointer& captured) {
    EXPECT_CODE(engine.begin_capture(captured, abi::CU_STREAM_CAPTURE_MODE_RELAXED), SUCCESS);
  }
  GraphExecPointer end(const StreamPointer& captured) {
    GraphPointer graph;
    GraphExecPointer exec;
    EXPECT_CODE(engine.end_capture(captured, graph), SUCCESS);
    EXPECT_CODE(engine.instantiate(graph, exec), SUCCESS);
    return exec;  // the graph itself is gone from here on
  }

  StreamPointer one = stream();
};

TEST_F(Graphs, RunTheirNodesAtEveryLaunchThoughTheGraphIsGone) {
  Journal journal;
  begin(one);
  EXPECT_CODE(engine.submit(one, noting(journal, "a")), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "b")), SUCCESS);
  auto exec = end(one);
  EXPECT_TRUE(journal.names().empty());
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "between")), SUCCESS);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  exec.reset();
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"a", "b", "between", "a", "b"}));
}

TEST_F(Graphs, LetGoOfTheirOperationsWithTheLastLaunch) {
  auto resource = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = resource;
  begin(one);
  EXPECT_CODE(engine.submit(one, operation([held = std::move(resource)] { return Outcome::done(); })), SUCCESS);
  auto exec = end(one);
  EXPECT_FALSE(watch.expired());
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  exec.reset();
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
  // The worker that ran it may still be letting go of it
  while (!watch.expired()) {
    std::this_thread::yield();
  }
}

TEST_F(Graphs, BeginEveryLaunchAnew) {
  Journal journal;
  begin(one);
  EXPECT_CODE(engine.submit(one, operation([&journal, tries = 0]() mutable {
                              journal.note(std::to_string(tries));
                              return ++tries == 3 ? Outcome::done() : Outcome::again();
                            })),
              SUCCESS);
  const auto exec = end(one);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"0", "1", "2", "0", "1", "2"}));
}

TEST_F(Graphs, MayBeLaunchedInSeveralStreamsAtOnce) {
  Gate gate;
  std::atomic<int> runs{0};
  begin(one);
  EXPECT_CODE(engine.submit(one, spinning_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(one, operation([&runs] {
                              ++runs;
                              return Outcome::done();
                            })),
              SUCCESS);
  const auto exec = end(one);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.launch(exec, stream()), SUCCESS);
  EXPECT_CODE(engine.launch(exec, legacy()), SUCCESS);
  gate.open();
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
  EXPECT_EQ(runs, 3);
}

TEST_F(Graphs, RunOneLaunchAtATimeInWhicheverStream) {
  Gate gate;
  std::atomic<int> runs{0};
  begin(one);
  EXPECT_CODE(engine.submit(one, operation([&runs] {
                              ++runs;
                              return Outcome::done();
                            })),
              SUCCESS);
  const auto exec = end(one);
  const auto other = stream();
  EXPECT_CODE(engine.submit(one, spinning_at(gate)), SUCCESS);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.launch(exec, other), SUCCESS);
  for (int tries = 0; tries < 1000; ++tries) {
    ASSERT_EQ(engine.query_stream(other).code, abi::CUDA_ERROR_NOT_READY) << "the launch before has not begun";
    std::this_thread::yield();
  }
  EXPECT_EQ(runs, 0);
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(other), SUCCESS);
  EXPECT_EQ(runs, 2);
}

TEST_F(Graphs, KeepTheOrderOfForkAndJoin) {
  Gate gate;
  Journal journal;
  const auto two = stream();
  const auto forked = event();
  const auto joined = event();
  begin(one);
  EXPECT_CODE(engine.submit(one, noting(journal, "root")), SUCCESS);
  EXPECT_CODE(engine.record_event(forked, one), SUCCESS);
  EXPECT_CODE(engine.wait_event(two, forked), SUCCESS);
  // The first branch waits for what the second does: branches go on side by side.
  EXPECT_CODE(engine.submit(one, spinning_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "left")), SUCCESS);
  EXPECT_CODE(engine.submit(two, operation([&] {
                              journal.note("right");
                              gate.open();
                              return Outcome::done();
                            })),
              SUCCESS);
  EXPECT_CODE(engine.record_event(joined, two), SUCCESS);
  EXPECT_CODE(engine.wait_event(one, joined), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "end")), SUCCESS);
  const auto exec = end(one);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"root", "right", "left", "end"}));
}

TEST_F(Graphs, OfNothingAreFine) {
  begin(one);
  const auto exec = end(one);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
}

TEST_F(Graphs, CannotBeLaunchedIntoACapture) {
  Journal journal;
  begin(one);
  EXPECT_CODE(engine.submit(one, noting(journal, "node")), SUCCESS);
  const auto exec = end(one);
  begin(one);
  EXPECT_CODE(engine.launch(exec, one), ERROR_STREAM_CAPTURE_UNSUPPORTED);
  GraphPointer graph;
  EXPECT_CODE(engine.end_capture(one, graph), ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_FALSE(graph);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"node"}));
}

TEST_F(Graphs, AreRefusedWhenTheyAreNone) {
  GraphExecPointer exec;
  EXPECT_CODE(engine.instantiate(nullptr, exec), ERROR_INVALID_VALUE);
  EXPECT_CODE(engine.launch(nullptr, one), ERROR_INVALID_VALUE);
  begin(one);
  CaptureInfo info;
  EXPECT_CODE(engine.capture_info(one, info), SUCCESS);
  EXPECT_CODE(engine.instantiate(info.graph, exec), ERROR_ILLEGAL_STATE);
  EXPECT_FALSE(exec);
  exec = end(one);
  EXPECT_CODE(engine.launch(exec, nullptr), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
}

TEST_F(Graphs, TouchWhatTheirNodesTouch) {
  Gate gate;
  Operation node = blocking_at(gate);
  node.touches = {{0x2000, 0x1000, true}};
  begin(one);
  EXPECT_CODE(engine.submit(one, node), SUCCESS);
  const auto exec = end(one);
  EXPECT_FALSE(engine.first_unfinished_touching(0x2000, 1));  // captured is not submitted
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  const auto found = engine.first_unfinished_touching(0x2000, 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, OperationKind::graph);
  EXPECT_FALSE(engine.first_unfinished_touching(0x3000, 1));
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_FALSE(engine.first_unfinished_touching(0x2000, 1));
}

TEST_F(Graphs, FailWithTheirNodes) {
  Journal journal;
  begin(one);
  EXPECT_CODE(engine.submit(one, failing()), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "after")), SUCCESS);
  const auto exec = end(one);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(engine.fault(context)->why,
            "launch of a graph of 2 nodes: graph node 0 (kernel k): nothing is mapped there");
  EXPECT_TRUE(journal.names().empty());
}

TEST_F(Graphs, MarkTheirHostFunctions) {
  bool inside = false;
  begin(one);
  EXPECT_CODE(engine.submit(one, operation(
                                     [&inside] {
                                       inside = inside_host_function();
                                       return Outcome::done();
                                     },
                                     OperationKind::host_function)),
              SUCCESS);
  const auto exec = end(one);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_TRUE(inside);
}

TEST_F(Graphs, RecordExternalEvents) {
  Gate before;
  Gate after;
  const auto point = event();
  begin(one);
  EXPECT_CODE(engine.submit(one, spinning_at(before)), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one, abi::CU_EVENT_RECORD_EXTERNAL), SUCCESS);
  EXPECT_CODE(engine.submit(one, spinning_at(after)), SUCCESS);
  const auto exec = end(one);
  EXPECT_EQ(exec->nodes.size(), 3U);
  EXPECT_CODE(engine.query_event(point), SUCCESS);  // not launched
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.query_event(point), ERROR_NOT_READY);
  before.open();
  EXPECT_CODE(engine.synchronize_event(point), SUCCESS);  // midway
  EXPECT_CODE(engine.query_stream(one), ERROR_NOT_READY);
  after.open();
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
}

TEST_F(Graphs, CompleteExternalRecordsOfDroppedLaunches) {
  Gate never;
  const auto point = event();
  begin(one);
  EXPECT_CODE(engine.submit(one, spinning_at(never)), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one, abi::CU_EVENT_RECORD_EXTERNAL), SUCCESS);
  const auto exec = end(one);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  const auto other = engine.create_context();
  const auto waits = stream_in(other);
  EXPECT_CODE(engine.wait_event(waits, point), SUCCESS);
  EXPECT_CODE(engine.query_stream(waits), ERROR_NOT_READY);
  EXPECT_CODE(engine.destroy_context(context), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(waits), SUCCESS);
}

TEST_F(Graphs, WaitForExternalEvents) {
  Gate gate;
  Journal journal;
  const auto point = event();
  const auto other = stream();
  begin(one);
  EXPECT_CODE(engine.wait_event(one, point, abi::CU_EVENT_WAIT_EXTERNAL), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "after")), SUCCESS);
  const auto exec = end(one);
  EXPECT_CODE(engine.submit(other, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(other, noting(journal, "before")), SUCCESS);
  EXPECT_CODE(engine.record_event(point, other), SUCCESS);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  gate.await_arrivals();
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"before", "after"}));
}

// The launch waits for what the event stood for when it was made: a later record, here one that comes after the launch
// in its own stream, would never be done.
TEST_F(Graphs, DoNotWaitForExternalEventsRecordedAfterTheLaunch) {
  Gate gate;
  const auto point = event();
  begin(one);
  EXPECT_CODE(engine.submit(one, spinning_at(gate)), SUCCESS);
  EXPECT_CODE(engine.wait_event(one, point, abi::CU_EVENT_WAIT_EXTERNAL), SUCCESS);
  const auto exec = end(one);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one), SUCCESS);
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
}

TEST_F(Graphs, WaitForAnExternalEventThatTheyRecordThemselves) {
  for (const bool wait_first : {false, true}) {
    Journal journal;
    const auto point = event();
    begin(one);
    EXPECT_CODE(engine.submit(one, noting(journal, "node")), SUCCESS);
    if (wait_first) {
      EXPECT_CODE(engine.wait_event(one, point, abi::CU_EVENT_WAIT_EXTERNAL), SUCCESS);
    }
    EXPECT_CODE(engine.record_event(point, one, abi::CU_EVENT_RECORD_EXTERNAL), SUCCESS);
    if (!wait_first) {
      EXPECT_CODE(engine.wait_event(one, point, abi::CU_EVENT_WAIT_EXTERNAL), SUCCESS);
    }
    const auto exec = end(one);
    EXPECT_CODE(engine.launch(exec, one), SUCCESS);
    EXPECT_CODE(engine.launch(exec, one), SUCCESS);
    EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
    EXPECT_EQ(journal.names(), (Names{"node", "node"}));
    EXPECT_CODE(engine.query_event(point), SUCCESS);
  }
}

// Launched twice at once: the second launch waits for the first one's record, not for its own, later one.
TEST_F(Graphs, WaitForTheExternalRecordsOfEarlierLaunches) {
  Gate gate;
  Journal journal;
  const auto point = event();
  begin(one);
  EXPECT_CODE(engine.submit(one, spinning_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "first")), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one, abi::CU_EVENT_RECORD_EXTERNAL), SUCCESS);
  const auto first = end(one);
  begin(one);
  EXPECT_CODE(engine.wait_event(one, point, abi::CU_EVENT_WAIT_EXTERNAL), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "second")), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one, abi::CU_EVENT_RECORD_EXTERNAL), SUCCESS);
  const auto second = end(one);
  const auto other = stream();
  EXPECT_CODE(engine.launch(first, one), SUCCESS);
  EXPECT_CODE(engine.launch(second, other), SUCCESS);
  EXPECT_CODE(engine.query_stream(other), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_event(point), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"first", "second"}));
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
}

class SteppedGraphs : public Graphs {
 protected:
  SteppedGraphs() : Graphs(stepped_scheduling()) {}
};

TEST_F(SteppedGraphs, TakeOneStepALaunch) {
  Journal journal;
  begin(one);
  EXPECT_CODE(engine.submit(one, noting(journal, "a")), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "b")), SUCCESS);
  const auto exec = end(one);
  EXPECT_CODE(engine.launch(exec, one), SUCCESS);
  EXPECT_EQ(engine.step(), Step::finished);
  EXPECT_EQ(engine.step(), Step::idle);
  EXPECT_EQ(journal.names(), (Names{"a", "b"}));
}

}  // namespace
}  // namespace cuvmm::emulator::execution::test
