// Waiting for what nobody announces.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace cuvmm {

// Pauses between two questions: short at first, since most waits are, then longer, so as not to burn a core.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  void pause(Clock::time_point deadline) {
    if (tries_ < 64) {
      ++tries_;
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + pause_));
    pause_ = std::min(2 * pause_, std::chrono::microseconds(1000));
  }

 private:
  int tries_ = 0;
  std::chrono::microseconds pause_{20};
};

// The deadline that far from now, however far that is.
[[nodiscard]] inline Backoff::Clock::time_point deadline_after(std::chrono::nanoseconds duration) {
  const auto now = Backoff::Clock::now();
  return duration > Backoff::Clock::time_point::max() - now ? Backoff::Clock::time_point::max() : now + duration;
}

}  // namespace cuvmm
