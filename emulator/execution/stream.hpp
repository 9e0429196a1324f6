// A stream: operations that run in the order of their submission.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "driver/abi.hpp"
#include "emulator/execution/completion.hpp"
#include "emulator/execution/operation.hpp"

namespace cuvmm::emulator::execution {

struct Capture;
struct Context;
struct GraphNode;

enum class StreamRole {
  created,     // made by cuStreamCreate
  legacy,      // the context's default stream: waits for all blocking streams, and they for it
  per_thread,  // one thread's default stream, a blocking one
};

// An operation that was submitted and is not finished.
struct PendingOperation {
  Operation operation;
  std::vector<std::shared_ptr<Completion>> waits_for{};
  std::vector<std::shared_ptr<Completion>> also_completes{};  // what it was to complete midway, and is done at its end
  std::shared_ptr<Completion> completion{};
  StreamList
      ticket{};  // one node, to be put into the list of what it waits for: accepted work needs no memory to go on
  unsigned fruitless_tries = 0;
  unsigned tries_without_memory = 0;
};

using ReadyStreams = std::map<std::uint64_t, std::shared_ptr<Stream>>;  // by the order in which they became ready
using RestingStreams = std::multimap<std::chrono::steady_clock::time_point, std::shared_ptr<Stream>>;

// Owners keep a stream by shared pointer and hand it to the Engine; what is beneath the constants belongs to the engine
// and is guarded by its mutex.
struct Stream {
  Stream(std::uint64_t id_, std::shared_ptr<Context> context_, StreamRole role_, unsigned flags_, int priority_)
      : id(id_), context(std::move(context_)), role(role_), flags(flags_), priority(priority_) {
    ReadyStreams ready;
    ready_node = ready.extract(ready.emplace(0, nullptr).first);
    RestingStreams resting;
    resting_node = resting.extract(resting.emplace(std::chrono::steady_clock::time_point(), nullptr));
  }

  const std::uint64_t id;
  const std::shared_ptr<Context> context;
  const StreamRole role;
  const unsigned flags;
  const int priority;  // kept for cuStreamGetPriority; the scheduler does not heed it

  [[nodiscard]] bool legacy() const noexcept { return role == StreamRole::legacy; }
  // Whether this stream and the legacy default stream wait for each other.
  [[nodiscard]] bool blocking() const noexcept { return !legacy() && (flags & abi::CU_STREAM_NON_BLOCKING) == 0; }

  enum class Phase {
    waiting,   // has nothing to do, or waits for others
    ready,     // its oldest operation may run
    retrying,  // its oldest operation answered `again` and rests until retry_at
    running,   // a thread is running its oldest operation
  };
  Phase phase = Phase::waiting;
  std::list<PendingOperation> queue;
  std::shared_ptr<Completion> last;  // of the operation submitted last; null if there was none
  std::uint64_t ready_place = 0;
  std::chrono::steady_clock::time_point retry_at{};
  // The nodes by which it is listed, while it is not: to list it needs no memory.
  ReadyStreams::node_type ready_node;
  RestingStreams::node_type resting_node;
  unsigned helpers = 0;    // threads that wait for this stream and run its operations themselves
  bool destroyed = false;  // by cuStreamDestroy; what was submitted still runs
  bool faulted = false;    // one of its operations failed

  std::shared_ptr<Capture> capture;                    // null when not capturing
  std::vector<const GraphNode*> capture_dependencies;  // what the next captured operation depends on
};

}  // namespace cuvmm::emulator::execution
