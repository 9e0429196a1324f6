#include "execution_support.hpp"

namespace cuvmm::emulator::execution::test {
namespace {

using Names = std::vector<std::string>;

class Events : public ExecutionTest {};

TEST_F(Events, AreReadyBeforeTheyAreRecorded) {
  const auto fresh = event();
  EXPECT_CODE(engine.query_event(fresh), SUCCESS);
  EXPECT_CODE(engine.synchronize_event(fresh), SUCCESS);
  EXPECT_CODE(engine.wait_event(stream(), fresh), SUCCESS);
}

TEST_F(Events, StandForTheWorkBeforeTheirRecord) {
  Gate before;
  Gate after;
  const auto one = stream();
  const auto point = event();
  EXPECT_CODE(engine.submit(one, blocking_at(before)), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one), SUCCESS);
  EXPECT_CODE(engine.submit(one, blocking_at(after)), SUCCESS);
  EXPECT_CODE(engine.query_event(point), ERROR_NOT_READY);
  before.open();
  EXPECT_CODE(engine.synchronize_event(point), SUCCESS);
  EXPECT_CODE(engine.query_event(point), SUCCESS);
  EXPECT_CODE(engine.query_stream(one), ERROR_NOT_READY);
  after.open();
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
}

TEST_F(Events, OrderStreams) {
  Gate gate;
  Journal journal;
  const auto first = stream();
  const auto second = stream();
  const auto point = event();
  EXPECT_CODE(engine.submit(first, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(first, noting(journal, "first")), SUCCESS);
  EXPECT_CODE(engine.record_event(point, first), SUCCESS);
  EXPECT_CODE(engine.wait_event(second, point), SUCCESS);
  EXPECT_CODE(engine.submit(second, noting(journal, "second")), SUCCESS);
  gate.await_arrivals();
  EXPECT_CODE(engine.query_stream(second), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(second), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"first", "second"}));
}

TEST_F(Events, MoveWhenRecordedAgainButNotForThoseWhoWaitAlready) {
  Gate first;
  Gate second;
  const auto one = stream();
  const auto waits = stream();
  const auto point = event();
  EXPECT_CODE(engine.submit(one, blocking_at(first)), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one), SUCCESS);
  EXPECT_CODE(engine.wait_event(waits, point), SUCCESS);
  EXPECT_CODE(engine.submit(one, blocking_at(second)), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one), SUCCESS);
  first.open();
  EXPECT_CODE(engine.synchronize_stream(waits), SUCCESS);   // waited for the first record
  EXPECT_CODE(engine.query_event(point), ERROR_NOT_READY);  // stands for the second
  second.open();
  EXPECT_CODE(engine.synchronize_event(point), SUCCESS);
}

TEST_F(Events, MayBeDestroyedWhilePending) {
  Gate gate;
  Journal journal;
  const auto one = stream();
  const auto waits = stream();
  auto point = event();
  EXPECT_CODE(engine.submit(one, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "before")), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one), SUCCESS);
  EXPECT_CODE(engine.wait_event(waits, point), SUCCESS);
  EXPECT_CODE(engine.submit(waits, noting(journal, "after")), SUCCESS);
  EXPECT_CODE(engine.destroy_event(point), SUCCESS);
  point.reset();
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(waits), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"before", "after"}));
}

TEST_F(Events, MeasureTime) {
  Gate gate;
  const auto one = stream();
  const auto start = event();
  const auto end = event();
  const auto untimed = event(abi::CU_EVENT_DISABLE_TIMING);
  const auto never = event();
  float milliseconds = -1;
  EXPECT_CODE(engine.record_event(start, one), SUCCESS);
  EXPECT_CODE(engine.record_event(untimed, one), SUCCESS);
  EXPECT_CODE(engine.submit(one, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.record_event(end, one), SUCCESS);
  EXPECT_CODE(engine.elapsed_time(start, end, milliseconds), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_event(end), SUCCESS);
  EXPECT_CODE(engine.elapsed_time(start, end, milliseconds), SUCCESS);
  EXPECT_GT(milliseconds, 0.0F);
  EXPECT_CODE(engine.elapsed_time(end, start, milliseconds), SUCCESS);
  EXPECT_LT(milliseconds, 0.0F);
  EXPECT_CODE(engine.elapsed_time(start, untimed, milliseconds), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.elapsed_time(start, never, milliseconds), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.elapsed_time(start, nullptr, milliseconds), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.synchronize_event(untimed), SUCCESS);
}

TEST_F(Events, AreRecordedInTheirContextAndWaitedForInAny) {
  Gate gate;
  const auto other = engine.create_context();
  const auto here = stream();
  const auto there = stream_in(other);
  const auto point = event();
  const auto theirs = event_in(other);
  EXPECT_CODE(engine.record_event(point, there), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.submit(here, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.record_event(point, here), SUCCESS);
  EXPECT_CODE(engine.wait_event(there, point), SUCCESS);
  EXPECT_CODE(engine.record_event(theirs, there), SUCCESS);
  EXPECT_CODE(engine.query_event(theirs), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_event(theirs), SUCCESS);
  float milliseconds = 0;
  EXPECT_CODE(engine.elapsed_time(point, theirs, milliseconds), ERROR_INVALID_HANDLE);
}

TEST_F(Events, JudgeTheirFlagsAndHandles) {
  const auto one = stream();
  const auto point = event();
  EXPECT_CODE(engine.record_event(point, one, 2), ERROR_INVALID_VALUE);
  EXPECT_CODE(engine.wait_event(one, point, 2), ERROR_INVALID_VALUE);
  EXPECT_CODE(engine.record_event(point, one, abi::CU_EVENT_RECORD_EXTERNAL), ERROR_ILLEGAL_STATE);
  EXPECT_CODE(engine.wait_event(one, point, abi::CU_EVENT_WAIT_EXTERNAL), ERROR_ILLEGAL_STATE);
  EXPECT_CODE(engine.record_event(nullptr, one), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.record_event(point, nullptr), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.wait_event(one, nullptr), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.wait_event(nullptr, point), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.query_event(nullptr), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.synchronize_event(nullptr), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.destroy_event(nullptr), ERROR_INVALID_HANDLE);
  EXPECT_CODE(engine.record_event(point, one, 0), SUCCESS);
  EXPECT_CODE(engine.wait_event(one, point, 0), SUCCESS);
}

TEST_F(Events, InTheLegacyStreamCoverBlockingStreams) {
  Gate gate;
  const auto blocking = stream(abi::CU_STREAM_DEFAULT);
  const auto point = event();
  EXPECT_CODE(engine.submit(blocking, blocking_at(gate)), SUCCESS);
  EXPECT_CODE(engine.record_event(point, legacy()), SUCCESS);
  EXPECT_CODE(engine.query_event(point), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_event(point), SUCCESS);
}

}  // namespace
}  // namespace cuvmm::emulator::execution::test
