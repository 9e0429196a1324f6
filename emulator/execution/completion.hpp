// The moment at which one submitted operation is finished; others wait for it.
#pragma once

#include <chrono>
#include <list>
#include <memory>

namespace cuvmm::emulator::execution {

struct Stream;

// Guarded by the scheduler's mutex.
// Streams that are to go on, one behind the other. They move from list to list by their nodes, so that nothing that
// work makes happen needs memory.
using StreamList = std::list<std::shared_ptr<Stream>>;

struct Completion {
  bool done = false;
  std::chrono::nanoseconds when{};  // on the scheduler's clock; valid once done
  StreamList dependents;            // streams whose oldest operation waits for this
};

}  // namespace cuvmm::emulator::execution
