#include <thread>

#include "execution_support.hpp"

namespace cuvmm::emulator::execution::test {
namespace {

using Names = std::vector<std::string>;

class Streams : public ExecutionTest {};

TEST_F(Streams, RunTheirOperationsInTheOrderOfSubmission) {
  Journal journal;
  const auto one = stream();
  Names expected;
  for (int i = 0; i < 100; ++i) {
    expected.push_back(std::to_string(i));
    EXPECT_CODE(engine.submit(one, noting(journal, expected.back())), SUCCESS);
  }
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_EQ(journal.names(), expected);
}

TEST_F(Streams, GoOnWhileAnotherIsBlocked) {
  Gate gate;
  const auto blocked = stream();
  const auto free = stream();
  EXPECT_CODE(engine.submit(blocked, blocking_at(gate)), SUCCESS);
  gate.await_arrivals();
  EXPECT_CODE(engine.submit(free, nothing()), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(free), SUCCESS);
  EXPECT_CODE(engine.query_stream(free), SUCCESS);
  EXPECT_CODE(engine.query_stream(blocked), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(blocked), SUCCESS);
  EXPECT_CODE(engine.query_stream(blocked), SUCCESS);
}

TEST_F(Streams, GoOnWhileManyOthersSpinOrBlock) {
  Gate gate;
  std::vector<StreamPointer> held;
  for (int i = 0; i < 12; ++i) {
    held.push_back(stream());
    EXPECT_CODE(engine.submit(held.back(), i % 2 == 0 ? blocking_at(gate) : spinning_at(gate)), SUCCESS);
  }
  gate.await_arrivals(12);
  const auto free = stream();
  for (int i = 0; i < 50; ++i) {
    EXPECT_CODE(engine.submit(free, nothing()), SUCCESS);
  }
  const auto done = event();
  EXPECT_CODE(engine.record_event(done, free), SUCCESS);
  EXPECT_CODE(engine.synchronize_event(done), SUCCESS);  // workers do it: nobody waits for the stream itself
  gate.open();
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
}

TEST_F(Streams, LetASpinningOperationSeeWhatAnotherStreamBrings) {
  Gate gate;
  const auto spins = stream();
  const auto opens = stream();
  EXPECT_CODE(engine.submit(spins, spinning_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(opens, operation([&gate] {
                              gate.open();
                              return Outcome::done();
                            })),
              SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(spins), SUCCESS);
}

TEST_F(Streams, CompleteInTheBackgroundWhenDestroyedWithPendingWork) {
  Gate gate;
  Journal journal;
  auto doomed = stream();
  EXPECT_CODE(engine.submit(doomed, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(doomed, noting(journal, "after")), SUCCESS);
  const auto end = event();
  EXPECT_CODE(engine.record_event(end, doomed), SUCCESS);
  EXPECT_CODE(engine.destroy_stream(doomed), SUCCESS);
  doomed.reset();
  EXPECT_TRUE(journal.names().empty());
  gate.open();
  EXPECT_CODE(engine.synchronize_event(end), SUCCESS);
  EXPECT_EQ(journal.names(), Names{"after"});
}

TEST_F(Streams, OfTheDefaultKindsCannotBeDestroyed) {
  EXPECT_CODE(engine.destroy_stream(legacy()), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.destroy_stream(engine.per_thread_stream(context)), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.destroy_stream(nullptr), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.destroy_stream(stream()), SUCCESS);
}

TEST_F(Streams, KeepTheirFlags) {
  unsigned flags = 77;
  EXPECT_CODE(engine.stream_flags(stream(abi::CU_STREAM_NON_BLOCKING), flags), SUCCESS);
  EXPECT_EQ(flags, 1U);
  EXPECT_CODE(engine.stream_flags(legacy(), flags), SUCCESS);
  EXPECT_EQ(flags, 0U);
}

TEST_F(Streams, OfTheLegacyKindWaitForBlockingOnes) {
  Gate gate;
  Journal journal;
  const auto blocking = stream(abi::CU_STREAM_DEFAULT);
  const auto unblocking = stream(abi::CU_STREAM_NON_BLOCKING);
  Gate other_gate;
  EXPECT_CODE(engine.submit(unblocking, blocking_at(other_gate)), SUCCESS);
  EXPECT_CODE(engine.submit(blocking, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(blocking, noting(journal, "blocking")), SUCCESS);
  EXPECT_CODE(engine.submit(legacy(), noting(journal, "legacy")), SUCCESS);
  gate.await_arrivals();
  EXPECT_CODE(engine.query_stream(legacy()), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(legacy()), SUCCESS);  // though the non-blocking stream is still held
  EXPECT_EQ(journal.names(), (Names{"blocking", "legacy"}));
  EXPECT_CODE(engine.query_stream(unblocking), ERROR_NOT_READY);
  other_gate.open();
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
}

TEST_F(Streams, OfTheBlockingKindWaitForTheLegacyOne) {
  Gate gate;
  Journal journal;
  const auto blocking = stream(abi::CU_STREAM_DEFAULT);
  const auto unblocking = stream(abi::CU_STREAM_NON_BLOCKING);
  EXPECT_CODE(engine.submit(legacy(), blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(legacy(), noting(journal, "legacy")), SUCCESS);
  EXPECT_CODE(engine.submit(blocking, noting(journal, "blocking")), SUCCESS);
  EXPECT_CODE(engine.submit(unblocking, noting(journal, "unblocking")), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(unblocking), SUCCESS);
  EXPECT_CODE(engine.query_stream(blocking), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(blocking), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"unblocking", "legacy", "blocking"}));
}

TEST_F(Streams, OfTheLegacyKindAnswerForTheBlockingOnesToo) {
  Gate gate;
  const auto blocking = stream(abi::CU_STREAM_DEFAULT);
  EXPECT_CODE(engine.submit(blocking, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.query_stream(legacy()), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(legacy()), SUCCESS);
  EXPECT_CODE(engine.query_stream(blocking), SUCCESS);
}

TEST_F(Streams, OfAnotherContextAreFreeOfTheLegacyOne) {
  Gate gate;
  const auto other = engine.create_context();
  EXPECT_CODE(engine.submit(legacy(), blocking_at(gate)), SUCCESS);
  const auto elsewhere = stream_in(other, abi::CU_STREAM_DEFAULT);
  EXPECT_CODE(engine.submit(elsewhere, nothing()), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(elsewhere), SUCCESS);
  gate.open();
}

TEST_F(Streams, OfThePerThreadKindAreOneForEachThreadAndBlocking) {
  const auto mine = engine.per_thread_stream(context);
  EXPECT_EQ(mine, engine.per_thread_stream(context));
  StreamPointer other;
  std::thread([&] { other = engine.per_thread_stream(context); }).join();
  EXPECT_NE(mine, other);

  Gate gate;
  EXPECT_CODE(engine.submit(mine, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(legacy(), nothing()), SUCCESS);
  EXPECT_CODE(engine.submit(other, nothing()), SUCCESS);  // waits for the legacy stream, and so for `mine`
  EXPECT_CODE(engine.query_stream(other), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(other), SUCCESS);
}

TEST_F(Streams, NeedNoThreadForSynchronousWork) {
  Journal journal;
  const auto caller = std::this_thread::get_id();
  std::thread::id ran_on;
  EXPECT_CODE(engine.submit_and_wait(legacy(), operation([&] {
                                       ran_on = std::this_thread::get_id();
                                       return Outcome::done();
                                     })),
              SUCCESS);
  EXPECT_EQ(ran_on, caller);
  EXPECT_EQ(engine.worker_count(), 0U);
  EXPECT_CODE(engine.submit(stream(), nothing()), SUCCESS);
  EXPECT_NE(engine.worker_count(), 0U);
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
}

TEST_F(Streams, WaitInSynchronousWorkForWhatCameBefore) {
  Gate gate;
  Journal journal;
  const auto blocking = stream(abi::CU_STREAM_DEFAULT);
  EXPECT_CODE(engine.submit(blocking, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(blocking, noting(journal, "before")), SUCCESS);
  std::thread opener([&] {
    gate.await_arrivals();
    gate.open();
  });
  EXPECT_CODE(engine.submit_and_wait(legacy(), noting(journal, "synchronous")), SUCCESS);
  opener.join();
  EXPECT_EQ(journal.names(), (Names{"before", "synchronous"}));
}

TEST_F(Streams, LoseTheirWorkersAfterAWhileAndGetNewOnes) {
  const auto one = stream();
  EXPECT_CODE(engine.submit(one, nothing()), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  while (engine.worker_count() != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto end = event();
  EXPECT_CODE(engine.submit(one, nothing()), SUCCESS);
  EXPECT_CODE(engine.record_event(end, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_event(end), SUCCESS);
}

TEST_F(Streams, OfThreadsGoAfterTheirThreads) {
  Journal journal;
  const auto own = engine.per_thread_stream(context);
  for (int round = 0; round < 20; ++round) {
    std::thread([&] {
      const auto made = engine.per_thread_stream(context);
      EXPECT_NE(made, own);
      EXPECT_EQ(engine.per_thread_stream(context), made);
      EXPECT_CODE(engine.submit(made, noting(journal, "work")), SUCCESS);
      EXPECT_CODE(engine.synchronize_stream(made), SUCCESS);
    }).join();
    EXPECT_LE(engine.stream_count(context), 2U);
  }
  EXPECT_EQ(engine.per_thread_stream(context), own);
}

// What an ended thread submitted still runs, and is still waited for.
TEST_F(Streams, OfEndedThreadsRunWhatTheyHave) {
  Gate gate;
  Journal journal;
  std::thread([&] {
    const auto made = engine.per_thread_stream(context);
    EXPECT_CODE(engine.submit(made, blocking_at(gate)), SUCCESS);
    EXPECT_CODE(engine.submit(made, noting(journal, "last")), SUCCESS);
  }).join();
  (void)engine.per_thread_stream(context);
  EXPECT_EQ(engine.stream_count(context), 2U);
  gate.open();
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
  EXPECT_EQ(journal.names(), Names{"last"});
  EXPECT_EQ(engine.stream_count(context), 1U);
}

TEST_F(Streams, RunHostFunctionsAndKernelsThatCannotWaitForTheEngine) {
  const auto one = stream();
  const auto point = event();
  EXPECT_FALSE(inside_host_function() || inside_kernel());
  for (const OperationKind kind : {OperationKind::host_function, OperationKind::kernel}) {
    bool in_function = false;
    bool in_kernel = false;
    std::vector<abi::CUresult> codes;
    const auto run = [&] {
      in_function = inside_host_function();
      in_kernel = inside_kernel();
      codes = {engine.synchronize_stream(one).code, engine.synchronize_context(context).code,
               engine.submit_and_wait(legacy(), nothing()).code, engine.destroy_context(context).code,
               engine.synchronize_event(point).code};
      return Outcome::done();
    };
    EXPECT_CODE(engine.submit(one, operation(run, kind)), SUCCESS);
    EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
    EXPECT_EQ(in_function, kind == OperationKind::host_function);
    EXPECT_EQ(in_kernel, kind == OperationKind::kernel);
    EXPECT_FALSE(inside_host_function() || inside_kernel());
    EXPECT_EQ(codes, std::vector<abi::CUresult>(5, abi::CUDA_ERROR_NOT_PERMITTED));
    EXPECT_CODE(engine.synchronize_context(context), SUCCESS);  // the same calls, outside
    EXPECT_CODE(engine.synchronize_event(point), SUCCESS);
  }
}

TEST_F(Streams, TellWhatTouchesARange) {
  Gate gate;
  const auto one = stream();
  EXPECT_FALSE(engine.first_unfinished_touching(0x1000, 0x1000));
  Operation reader = blocking_at(gate);
  reader.description = "kernel cuvmm_copy";
  reader.touches = {{0x1000, 0x100, false}, {0x8000, 0x1000, true}};
  EXPECT_CODE(engine.submit(one, reader), SUCCESS);
  Operation later = nothing();
  later.touches = {{0x4000, 1, true}};
  later.description = "later";
  EXPECT_CODE(engine.submit(one, later), SUCCESS);
  gate.await_arrivals();

  const auto found = engine.first_unfinished_touching(0x8fff, 0x10000);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->description, "kernel cuvmm_copy");
  EXPECT_EQ(found->stream, one->id);
  EXPECT_EQ(found->context, context->id);
  EXPECT_EQ(found->range.address, 0x8000U);
  EXPECT_TRUE(found->range.write);
  EXPECT_EQ(engine.first_unfinished_touching(0x3fff, 2)->description, "later");  // pending, not running
  EXPECT_TRUE(engine.first_unfinished_touching(0, ~std::size_t{0}));
  EXPECT_FALSE(engine.first_unfinished_touching(0x1100, 0x100));  // just behind
  EXPECT_FALSE(engine.first_unfinished_touching(0x0f00, 0x100));  // just before
  EXPECT_FALSE(engine.first_unfinished_touching(0x1000, 0));
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_FALSE(engine.first_unfinished_touching(0, ~std::size_t{0}));
}

TEST_F(Streams, LetGoOfAnOperationOnceItIsDone) {
  const auto one = stream();
  auto resource = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = resource;
  EXPECT_CODE(engine.submit_and_wait(one, operation([held = std::move(resource)] { return Outcome::done(); })),
              SUCCESS);
  EXPECT_TRUE(watch.expired());
}

TEST_F(Streams, DestroyOperationsWithNoLockHeld) {
  const auto one = stream();
  struct Calls {
    explicit Calls(Engine& its_engine) : engine(its_engine) {}
    Calls(const Calls&) = delete;
    Calls& operator=(const Calls&) = delete;
    ~Calls() { (void)engine.worker_count(); }  // hangs if the lock is held
    Engine& engine;
  };
  EXPECT_CODE(engine.submit(one, operation([held = std::make_shared<Calls>(engine)] { return Outcome::done(); })),
              SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_CODE(engine.begin_capture(one, abi::CU_STREAM_CAPTURE_MODE_RELAXED), SUCCESS);
  EXPECT_CODE(engine.submit(one, operation([held = std::make_shared<Calls>(engine)] { return Outcome::done(); })),
              SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_CODE(engine.submit(one, operation([held = std::make_shared<Calls>(engine)] { return Outcome::done(); })),
              ERROR_STREAM_CAPTURE_INVALIDATED);
  GraphPointer graph;
  EXPECT_CODE(engine.end_capture(one, graph), ERROR_STREAM_CAPTURE_INVALIDATED);
}

}  // namespace
}  // namespace cuvmm::emulator::execution::test
