// How the engine decides when operations run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "emulator/execution/operation.hpp"

namespace cuvmm::emulator::execution {

// How many threads of the process run operations, of whatever engine.
[[nodiscard]] std::size_t worker_threads() noexcept;

struct Scheduling {
  enum class Mode {
    // Worker threads, created when the first asynchronous operation needs one and as many as operations run at once;
    // idle ones end. A waiting thread runs the operations of the stream that it waits for itself. Where the system
    // has no thread left for a worker, threads that wait, and queries, run the operations of all streams.
    threaded,
    // No threads. Operations run on the calling thread only, inside step(), run_until_idle() and the waiting calls, one
    // at a time, each chosen by a seeded generator among the streams whose oldest operation may run. While one thread
    // alone uses the engine, equal seeds and equal calls give equal orders.
    stepped,
  };

  Mode mode = Mode::threaded;
  std::uint64_t seed = 0;  // stepped mode

  // Stepped mode: a waiting call that has tried every ready operation about this many times in a row without finishing
  // one gives up and answers LAUNCH_TIMEOUT; nothing else changes, and it may be called again. 0: it never gives up.
  std::size_t stall_limit = 0;

  // Stepped mode: how many steps a query (cuStreamQuery, cuEventQuery) makes before it answers, so that code that polls
  // comes to an end. 0: queries only look.
  std::size_t steps_per_query = 0;

  bool keep_trace = false;  // stepped mode: whether finished operations are noted for Engine::take_trace()
};

// An operation that finished in stepped mode.
struct TraceEntry {
  std::uint64_t stream = 0;  // Stream::id
  OperationKind kind = OperationKind::kernel;
  std::string description{};

  friend bool operator==(const TraceEntry&, const TraceEntry&) = default;
};

// What one step did.
enum class Step {
  finished,   // an operation came to its end
  advanced,   // an operation went on and is not finished
  fruitless,  // an operation was tried and is not finished
  idle,       // no operation could be tried: nothing is submitted, or other threads are running all there is
};

}  // namespace cuvmm::emulator::execution
