// The moment at which one submitted operation is finished; others wait for it.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

namespace cuvmm::emulator::execution {

struct Stream;

// Guarded by the scheduler's mutex.
struct Completion {
  bool done = false;
  std::chrono::nanoseconds when{};                  // on the scheduler's clock; valid once done
  std::vector<std::shared_ptr<Stream>> dependents;  // streams whose oldest operation waits for this
};

}  // namespace cuvmm::emulator::execution
