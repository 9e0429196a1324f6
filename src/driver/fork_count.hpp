// Whether this process is a forked child of the one in which something was made: a driver is none there.
#pragma once

#include <pthread.h>

#include <atomic>

namespace cuvmm::driver {

// How many forks lie between this process and the one that asked first: what was made at another count was made in an
// ancestor. Makes no system call after the first time.
[[nodiscard]] inline unsigned fork_count() {
  static std::atomic<unsigned> forks{0};
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return forks.load(std::memory_order_relaxed);
}

}  // namespace cuvmm::driver
