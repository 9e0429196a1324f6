#include <algorithm>
#include <set>
#include <stdexcept>
#include <thread>

#include "execution_support.hpp"

namespace cuvmm::emulator::execution::test {
namespace {

using Names = std::vector<std::string>;

class Stepped : public ExecutionTest {
 protected:
  Stepped() : ExecutionTest(stepped_scheduling()) {}
};

// Four streams of five operations, the second and fourth coupled by an event.
Names order_for_seed(std::uint64_t seed) {
  Engine engine(stepped_scheduling(seed));
  const auto context = engine.create_context();
  std::vector<StreamPointer> streams(4);
  for (auto& stream : streams) {
    EXPECT_CODE(engine.create_stream(context, abi::CU_STREAM_NON_BLOCKING, 0, stream), SUCCESS);
  }
  EventPointer event;
  EXPECT_CODE(engine.create_event(context, 0, event), SUCCESS);
  Journal journal;
  for (int i = 0; i < 5; ++i) {
    for (std::size_t s = 0; s < streams.size(); ++s) {
      EXPECT_CODE(engine.submit(streams[s], noting(journal, std::to_string(s) + "." + std::to_string(i))), SUCCESS);
    }
    if (i == 2) {
      EXPECT_CODE(engine.record_event(event, streams[1]), SUCCESS);
      EXPECT_CODE(engine.wait_event(streams[3], event), SUCCESS);
    }
  }
  engine.run_until_idle();
  Names traced;
  for (const TraceEntry& entry : engine.take_trace()) {
    traced.push_back(entry.description);
  }
  EXPECT_EQ(traced, journal.names());
  return journal.names();
}

TEST(SteppedOrders, AreEqualForEqualSeeds) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(order_for_seed(seed), order_for_seed(seed));
  }
}

TEST(SteppedOrders, DifferBetweenSeedsAndKeepEveryDependency) {
  std::set<Names> orders;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Names order = order_for_seed(seed);
    ASSERT_EQ(order.size(), 20U);
    const auto place = [&](const std::string& name) { return std::find(order.begin(), order.end(), name); };
    for (const std::string stream : {"0.", "1.", "2.", "3."}) {
      for (int i = 1; i < 5; ++i) {
        EXPECT_LT(place(stream + std::to_string(i - 1)), place(stream + std::to_string(i)));
      }
    }
    EXPECT_LT(place("1.2"), place("3.3"));
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 40U);
}

TEST_F(Stepped, RunsNothingByItself) {
  Journal journal;
  const auto one = stream();
  EXPECT_CODE(engine.submit(one, noting(journal, "a")), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "b")), SUCCESS);
  EXPECT_CODE(engine.query_stream(one), ERROR_NOT_READY);
  EXPECT_TRUE(journal.names().empty());
  EXPECT_EQ(engine.step(), Step::finished);
  EXPECT_EQ(journal.names(), Names{"a"});
  EXPECT_CODE(engine.query_stream(one), ERROR_NOT_READY);
  EXPECT_EQ(engine.step(), Step::finished);
  EXPECT_CODE(engine.query_stream(one), SUCCESS);
  EXPECT_EQ(engine.step(), Step::idle);
  EXPECT_EQ(engine.worker_count(), 0U);
}

TEST_F(Stepped, RunsWhatAWaitingCallNeeds) {
  Journal journal;
  const auto one = stream();
  EXPECT_CODE(engine.submit(one, noting(journal, "a")), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  EXPECT_EQ(journal.names(), Names{"a"});
  const auto point = event();
  EXPECT_CODE(engine.submit(one, noting(journal, "b")), SUCCESS);
  EXPECT_CODE(engine.record_event(point, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_event(point), SUCCESS);
  EXPECT_CODE(engine.submit(one, noting(journal, "c")), SUCCESS);
  EXPECT_CODE(engine.synchronize_context(context), SUCCESS);
  EXPECT_CODE(engine.submit_and_wait(legacy(), noting(journal, "d")), SUCCESS);
  EXPECT_EQ(journal.names(), (Names{"a", "b", "c", "d"}));
}

TEST_F(Stepped, TriesSpinningOperationsAndGoesOnWithOthers) {
  Gate gate;
  Journal journal;
  const auto spins = stream();
  const auto other = stream();
  EXPECT_CODE(engine.submit(spins, spinning_at(gate)), SUCCESS);
  EXPECT_EQ(engine.step(), Step::fruitless);
  EXPECT_CODE(engine.submit(other, noting(journal, "other")), SUCCESS);
  engine.run_until_idle();  // comes back though the spin has no end
  EXPECT_EQ(journal.names(), Names{"other"});
  EXPECT_CODE(engine.query_stream(spins), ERROR_NOT_READY);
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(spins), SUCCESS);
}

// More tries than one that spins in vain is given, and no rest between them.
TEST_F(Stepped, GoesOnWithWhatAdvances) {
  const auto one = stream();
  Operation advancing;
  advancing.run = [tries = 0]() mutable { return ++tries < 200 ? Outcome::advanced() : Outcome::done(); };
  EXPECT_CODE(engine.submit(one, advancing), SUCCESS);
  EXPECT_EQ(engine.step(), Step::advanced);
  engine.run_until_idle();
  EXPECT_EQ(engine.step(), Step::idle);
  EXPECT_CODE(engine.query_stream(one), SUCCESS);
}

TEST_F(Stepped, TakesNoStepForEvents) {
  const auto one = stream();
  const auto point = event();
  EXPECT_CODE(engine.record_event(point, one), SUCCESS);
  EXPECT_CODE(engine.query_event(point), SUCCESS);
  EXPECT_EQ(engine.step(), Step::idle);
}

TEST_F(Stepped, MeasuresTimeInOperations) {
  const auto one = stream();
  const auto start = event();
  const auto end = event();
  EXPECT_CODE(engine.record_event(start, one), SUCCESS);
  EXPECT_CODE(engine.submit(one, nothing()), SUCCESS);
  EXPECT_CODE(engine.record_event(end, one), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  float milliseconds = 0;
  EXPECT_CODE(engine.elapsed_time(start, end, milliseconds), SUCCESS);
  EXPECT_FLOAT_EQ(milliseconds, 0.002F);
}

TEST_F(Stepped, KeepsRunningOperationsOfOtherThreadsInMind) {
  Gate gate;
  const auto one = stream();
  EXPECT_CODE(engine.submit(one, blocking_at(gate)), SUCCESS);
  std::thread runner([&] { EXPECT_EQ(engine.step(), Step::finished); });
  gate.await_arrivals();
  EXPECT_EQ(engine.step(), Step::idle);
  std::thread opener([&] { gate.open(); });
  EXPECT_CODE(engine.synchronize_stream(one), SUCCESS);
  runner.join();
  opener.join();
}

TEST(SteppedStall, EndsAWaitThatCannotEnd) {
  Scheduling scheduling = stepped_scheduling();
  scheduling.stall_limit = 20;
  Engine engine(scheduling);
  const auto context = engine.create_context();
  StreamPointer stream;
  EXPECT_CODE(engine.create_stream(context, 0, 0, stream), SUCCESS);
  Gate gate;
  EXPECT_CODE(engine.submit(stream, spinning_at(gate)), SUCCESS);
  EXPECT_CODE(engine.synchronize_stream(stream), ERROR_LAUNCH_TIMEOUT);
  EXPECT_CODE(engine.check_context(context), SUCCESS);  // not sticky
  gate.open();
  EXPECT_CODE(engine.synchronize_stream(stream), SUCCESS);
}

TEST(SteppedQueries, CanMakeSteps) {
  Scheduling scheduling = stepped_scheduling();
  scheduling.steps_per_query = 1;
  Engine engine(scheduling);
  const auto context = engine.create_context();
  StreamPointer stream;
  EventPointer event;
  EXPECT_CODE(engine.create_stream(context, 0, 0, stream), SUCCESS);
  EXPECT_CODE(engine.create_event(context, 0, event), SUCCESS);
  EXPECT_CODE(engine.submit(stream, nothing()), SUCCESS);
  EXPECT_CODE(engine.submit(stream, nothing()), SUCCESS);
  EXPECT_CODE(engine.submit(stream, nothing()), SUCCESS);
  EXPECT_CODE(engine.record_event(event, stream), SUCCESS);
  EXPECT_CODE(engine.query_stream(stream), ERROR_NOT_READY);
  EXPECT_CODE(engine.query_event(event), ERROR_NOT_READY);
  EXPECT_CODE(engine.query_event(event), SUCCESS);
}

TEST(ThreadedEngines, HaveNoSteps) {
  Engine engine;
  EXPECT_THROW((void)engine.step(), std::logic_error);
  EXPECT_THROW(engine.run_until_idle(), std::logic_error);
}

}  // namespace
}  // namespace cuvmm::emulator::execution::test
