// What the tests of the execution engine share: operations that can be watched and held.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulator/execution/engine.hpp"

namespace cuvmm::emulator::execution::test {

using abi::CUDA_SUCCESS;

// The names of operations in the order in which they ran. Copies share one list, so that an operation which runs to the
// very end of a test may hold one.
class Journal {
 public:
  void note(const std::string& name) const {
    const std::lock_guard<std::mutex> guard(state_->mutex);
    state_->names.push_back(name);
  }
  [[nodiscard]] std::vector<std::string> names() const {
    const std::lock_guard<std::mutex> guard(state_->mutex);
    return state_->names;
  }

 private:
  struct State {
    std::mutex mutex;
    std::vector<std::string> names;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Closed at first; operations wait at it, by blocking or by answering `again`. Copies are the same gate.
class Gate {
 public:
  void open() const {
    const std::lock_guard<std::mutex> guard(state_->mutex);
    state_->open = true;
    state_->changed.notify_all();
  }
  void pass() const {
    std::unique_lock<std::mutex> lock(state_->mutex);
    ++state_->arrived;
    state_->changed.notify_all();
    state_->changed.wait(lock, [this] { return state_->open; });
  }
  [[nodiscard]] Outcome try_to_pass() const {
    const std::lock_guard<std::mutex> guard(state_->mutex);
    ++state_->arrived;
    state_->changed.notify_all();
    return state_->open ? Outcome::done() : Outcome::again();
  }
  // Returns once operations have come to the gate `times` times.
  void await_arrivals(int times = 1) const {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->arrived >= times; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
    int arrived = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline Operation operation(std::function<Outcome()> run, OperationKind kind = OperationKind::kernel,
                           std::string description = {}) {
  Operation made;
  made.kind = kind;
  made.description = std::move(description);
  made.run = std::move(run);
  return made;
}

inline Operation noting(const Journal& journal, const std::string& name, OperationKind kind = OperationKind::kernel) {
  return operation(
      [journal, name] {
        journal.note(name);
        return Outcome::done();
      },
      kind, name);
}

inline Operation nothing() {
  return operation([] { return Outcome::done(); });
}

// Blocks the thread that runs it, as a host function or a long copy does.
inline Operation blocking_at(const Gate& gate, OperationKind kind = OperationKind::kernel) {
  return operation(
      [gate] {
        gate.pass();
        return Outcome::done();
      },
      kind);
}

// Answers `again` until the gate is open, as a kernel that spins on a flag does.
inline Operation spinning_at(const Gate& gate) {
  return operation([gate] { return gate.try_to_pass(); });
}

inline Operation failing(abi::CUresult code = abi::CUDA_ERROR_ILLEGAL_ADDRESS) {
  return operation([code] { return Outcome::fault(code, "nothing is mapped there"); }, OperationKind::kernel,
                   "kernel k");
}

// An engine with one context, and short ways to make streams and events.
class ExecutionTest : public ::testing::Test {
 protected:
  explicit ExecutionTest(const Scheduling& scheduling = {}) : engine(scheduling), context(engine.create_context()) {}

  StreamPointer stream(unsigned flags = abi::CU_STREAM_NON_BLOCKING) { return stream_in(context, flags); }
  StreamPointer stream_in(const ContextPointer& owner, unsigned flags = abi::CU_STREAM_NON_BLOCKING) {
    StreamPointer made;
    EXPECT_EQ(engine.create_stream(owner, flags, 0, made).code, CUDA_SUCCESS);
    return made;
  }
  EventPointer event(unsigned flags = 0) { return event_in(context, flags); }
  EventPointer event_in(const ContextPointer& owner, unsigned flags = 0) {
    EventPointer made;
    EXPECT_EQ(engine.create_event(owner, flags, made).code, CUDA_SUCCESS);
    return made;
  }
  StreamPointer legacy() { return engine.legacy_stream(context); }

  Engine engine;
  ContextPointer context;
};

#define EXPECT_CODE(call, expected_code) EXPECT_EQ((call).code, ::cuvmm::abi::CUDA_##expected_code)

inline Scheduling stepped_scheduling(std::uint64_t seed = 1) {
  Scheduling scheduling;
  scheduling.mode = Scheduling::Mode::stepped;
  scheduling.seed = seed;
  scheduling.keep_trace = true;
  return scheduling;
}

}  // namespace cuvmm::emulator::execution::test
