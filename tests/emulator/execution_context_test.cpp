#include <stdexcept>
#include <thread>

#include "execution_support.hpp"

namespace cuvmm::emulator::execution::test {
namespace {

class Contexts : public ExecutionTest {};

TEST_F(Contexts, KeepTheirFirstErrorAndAnswerItToEveryCall) {
  const auto one = stream();
  const auto other = stream();
  const auto recorded = event();
  EXPECT_CODE(engine.record_event(recorded, other), SUCCESS);
  EXPECT_CODE(engine.submit(one, failing()), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), ERROR_ILLEGAL_ADDRESS);

  StreamPointer new_stream;
  EventPointer new_event;
  float milliseconds = 0;
  unsigned flags = 0;
  abi::CUstreamCaptureStatus status{};
  EXPECT_CODE(engine.check_context(context), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.synchronize_context(context), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.synchronize_stream(other), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.query_stream(other), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.submit(other, failing(abi::CUDA_ERROR_LAUNCH_FAILED)), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.submit_and_wait(legacy(), nothing()), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.create_stream(context, 0, 0, new_stream), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.create_event(context, 0, new_event), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.record_event(recorded, other), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.wait_event(other, recorded), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.query_event(recorded), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.synchronize_event(recorded), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.elapsed_time(recorded, recorded, milliseconds), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.begin_capture(other, abi::CU_STREAM_CAPTURE_MODE_GLOBAL), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.is_capturing(other, status), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.stream_flags(other, flags), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.destroy_event(recorded), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.destroy_stream(other), ERROR_ILLEGAL_ADDRESS);

  ASSERT_TRUE(engine.fault(context));
  EXPECT_EQ(engine.fault(context)->why, "kernel k: nothing is mapped there");
  EXPECT_NE(engine.check_context(context).detail.find("kernel k: nothing is mapped there"), std::string::npos);

  EXPECT_CODE(engine.destroy_context(context), SUCCESS);  // the way out
  const auto fresh = engine.create_context();
  EXPECT_CODE(engine.submit_and_wait(engine.legacy_stream(fresh), nothing()), SUCCESS);
}

TEST_F(Contexts, FailAloneUnlessTheyShareAGroup) {
  const auto loner = engine.create_context();
  const auto first = engine.create_context(FaultGroup{0});
  const auto second = engine.create_context(FaultGroup{0});
  const auto elsewhere = engine.create_context(FaultGroup{1});
  EXPECT_CODE(engine.submit_and_wait(engine.legacy_stream(first), failing()), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.check_context(second), ERROR_ILLEGAL_ADDRESS);
  EXPECT_CODE(engine.check_context(elsewhere), SUCCESS);
  EXPECT_CODE(engine.check_context(loner), SUCCESS);
  EXPECT_CODE(engine.check_context(context), SUCCESS);
  EXPECT_CODE(engine.check_context(engine.create_context(FaultGroup{0})), SUCCESS);  // made later
  EXPECT_CODE(engine.check_group(FaultGroup{1}), SUCCESS);
  EXPECT_CODE(engine.check_group(FaultGroup{0}), ERROR_ILLEGAL_ADDRESS);
  for (const auto& gone : {first, second}) EXPECT_CODE(engine.destroy_context(gone), SUCCESS);
  EXPECT_CODE(engine.check_group(FaultGroup{0}), ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Contexts, CanBeFailedFromOutside) {
  Gate gate;
  const auto one = stream();
  EXPECT_CODE(engine.submit(one, spinning_at(gate)), SUCCESS);
  gate.await_arrivals();
  engine.fail_context(context, {abi::CUDA_ERROR_ECC_UNCORRECTABLE, "a test"});
  EXPECT_CODE(engine.synchronize_stream(one), ERROR_ECC_UNCORRECTABLE);
  EXPECT_FALSE(engine.first_unfinished_touching(0, 1));
}

TEST_F(Contexts, DropWhatFollowsAFailureButRunHostFunctionsOfOtherStreams) {
  Gate gate;
  Journal journal;
  const auto fails = stream();
  const auto other = stream();
  EXPECT_CODE(engine.submit(other, blocking_at(gate, OperationKind::host_function)), SUCCESS);
  EXPECT_CODE(engine.submit(other, noting(journal, "kernel")), SUCCESS);
  EXPECT_CODE(engine.submit(other, noting(journal, "host function", OperationKind::host_function)), SUCCESS);
  EXPECT_CODE(engine.submit(fails, failing()), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(fails), ERROR_ILLEGAL_ADDRESS);
  const auto watcher = engine.create_context();
  const auto watching = stream_in(watcher);
  gate.open();
  while (journal.names().empty()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(journal.names(), std::vector<std::string>{"host function"});
  EXPECT_CODE(engine.submit_and_wait(watching, nothing()), SUCCESS);
}

TEST_F(Contexts, WakeWaitersWhenTheyFail) {
  Gate never;
  const auto spins = stream();
  const auto fails = stream();
  EXPECT_CODE(engine.submit(spins, spinning_at(never)), SUCCESS);
  const auto end = event();
  EXPECT_CODE(engine.record_event(end, spins), SUCCESS);
  std::thread later([&] {
    never.await_arrivals();
    EXPECT_CODE(engine.submit(fails, failing()), SUCCESS);
  });
  EXPECT_CODE(engine.synchronize_event(end), ERROR_ILLEGAL_ADDRESS);
  later.join();
}

TEST_F(Contexts, AreQuietOnceAWaitHasAnsweredTheirFailure) {
  Gate gate;
  const auto runs = stream();
  const auto fails = stream();
  bool over = false;  // plain: a wait that answers the failure has waited for this operation too
  EXPECT_CODE(engine.submit(runs, operation([gate, &over] {
                              gate.pass();
                              over = true;
                              return Outcome::done();
                            })),
              SUCCESS);
  gate.await_arrivals();
  EXPECT_CODE(engine.submit(fails, failing()), SUCCESS);
  std::thread opener([&] {
    while (engine.check_context(context).ok()) {
      std::this_thread::yield();
    }
    gate.open();
  });
  EXPECT_CODE(engine.synchronize_stream(fails), ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(over);
  opener.join();
}

TEST_F(Contexts, ReleaseStreamsOfOthersThatWaitForThem) {
  Gate never;
  const auto spins = stream();
  const auto end = event();
  EXPECT_CODE(engine.submit(spins, spinning_at(never)), SUCCESS);
  EXPECT_CODE(engine.record_event(end, spins), SUCCESS);
  const auto other = engine.create_context();
  const auto waits = stream_in(other);
  EXPECT_CODE(engine.wait_event(waits, end), SUCCESS);
  EXPECT_CODE(engine.submit(waits, nothing()), SUCCESS);
  EXPECT_CODE(engine.query_stream(waits), ERROR_NOT_READY);
  EXPECT_CODE(engine.destroy_context(context), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(waits), SUCCESS);
}

TEST_F(Contexts, DropPendingWorkWhenDestroyed) {
  Gate gate;
  Journal journal;
  const auto one = stream();
  EXPECT_CODE(engine.submit(one, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "pending")), SUCCESS);
  gate.await_arrivals();
  std::thread opener([&] {
    while (engine.check_context(context).code != abi::CUDA_ERROR_CONTEXT_IS_DESTROYED) {
      std::this_thread::yield();
    }
    gate.open();
  });
  EXPECT_CODE(engine.destroy_context(context), SUCCESS);  // waits for the operation that runs
  opener.join();
  EXPECT_TRUE(journal.names().empty());
  EXPECT_CODE(engine.submit(one, nothing()), ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_CODE(engine.synchronize_stream(one), ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_CODE(engine.check_context(context), ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_CODE(engine.destroy_context(context), ERROR_INVALID_CONTEXT);
  EXPECT_EQ(engine.legacy_stream(context), nullptr);
  EXPECT_EQ(engine.per_thread_stream(context), nullptr);
  EXPECT_CODE(engine.submit(engine.legacy_stream(context), nothing()), ERROR_INVALID_HANDLE);
}

TEST_F(Contexts, TurnExceptionsIntoFailures) {
  EXPECT_CODE(engine.submit_and_wait(legacy(), operation([]() -> Outcome { throw std::runtime_error("boom"); })),
              ERROR_LAUNCH_FAILED);
  EXPECT_EQ(engine.fault(context)->why, "kernel: boom");
}

TEST(Engines, MayEndWithWorkPendingAndCapturesOpen) {
  Gate never;
  Journal journal;
  {
    Engine engine;
    const auto context = engine.create_context();
    StreamPointer spins;
    StreamPointer captured;
    EventPointer event;
    EXPECT_CODE(engine.create_stream(context, 1, 0, spins), SUCCESS);
    EXPECT_CODE(engine.create_stream(context, 1, 0, captured), SUCCESS);
    EXPECT_CODE(engine.create_event(context, 0, event), SUCCESS);
    EXPECT_CODE(engine.submit(spins, spinning_at(never)), SUCCESS);
    EXPECT_CODE(engine.submit(spins, noting(journal, "pending")), SUCCESS);
    EXPECT_CODE(engine.begin_capture(captured, abi::CU_STREAM_CAPTURE_MODE_RELAXED), SUCCESS);
    EXPECT_CODE(engine.record_event(event, captured, abi::CU_EVENT_RECORD_EXTERNAL), SUCCESS);
    EXPECT_CODE(engine.record_event(event, captured), SUCCESS);
  }
  EXPECT_TRUE(journal.names().empty());
}

}  // namespace
}  // namespace cuvmm::emulator::execution::test
