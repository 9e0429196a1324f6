// The moment until which something is waited for.
#pragma once

#include <algorithm>
#include <chrono>

namespace cuvmm::sharing {

// A value; every function here that may wait takes one, so that nobody waits for ever for a process that hangs. One
// deadline may span several calls.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // That far from now; however far, and at once if it is negative.
  template <class Representation, class Period>
  [[nodiscard]] static Deadline in(std::chrono::duration<Representation, Period> duration) {
    // Compared as what overflows nowhere; in between, every duration fits into the clock's nanoseconds.
    const std::chrono::duration<long double> seconds(duration);
    constexpr std::chrono::hours longest(24 * 365 * 100);
    if (seconds >= longest) return Deadline(Clock::now() + longest);
    if (!(seconds > seconds.zero())) return Deadline(Clock::now());
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(duration));
  }
  [[nodiscard]] static Deadline at(Clock::time_point time) noexcept { return Deadline(time); }

  [[nodiscard]] Clock::time_point time() const noexcept { return time_; }
  [[nodiscard]] bool passed() const { return Clock::now() >= time_; }
  // What is left, rounded up; 0 if it has passed.
  [[nodiscard]] std::chrono::milliseconds left() const {
    const auto now = Clock::now();
    if (now >= time_) return std::chrono::milliseconds(0);  // what lies long ago has no difference that fits
    return std::chrono::ceil<std::chrono::milliseconds>(time_ - now);
  }
  [[nodiscard]] Deadline earlier(const Deadline& other) const noexcept {
    return Deadline(std::min(time_, other.time_));
  }

 private:
  explicit Deadline(Clock::time_point time) noexcept : time_(time) {}
  Clock::time_point time_;
};

}  // namespace cuvmm::sharing
