// Work on a stream that lasts until the case lets it go on.
#pragma once

#include <condition_variable>
#include <mutex>

#include "conformance/cases/environment.hpp"

namespace cuvmm::conformance {

// A host function that blocks its stream until the gate is opened. A case keeps it alive
// until the stream is idle. One that asks or waits while it is closed needs_concurrency.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() = default;

  // Enqueues the wait.
  void block(Environment& cuda, CUstream stream) {
    cuda.expect("host function", cuda->cuLaunchHostFunc(stream, wait, this));
  }

  void open() {
    const std::lock_guard lock{mutex_};
    open_ = true;
    opened_.notify_all();
  }

 private:
  static void wait(void* self) {
    Gate& gate = *static_cast<Gate*>(self);
    std::unique_lock lock{gate.mutex_};
    gate.opened_.wait(lock, [&gate] { return gate.open_; });
  }

  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// A gate that lives as long as the process: for cases that end while work is still blocked.
[[nodiscard]] inline Gate& lasting_gate() {
  static Gate* gate = new Gate;  // never destroyed, as another thread may wait in it until the process ends
  return *gate;
}

}  // namespace cuvmm::conformance
