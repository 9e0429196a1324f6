#include "emulator/api/fork_count.hpp"

#include <pthread.h>

#include <atomic>

namespace cuvmm::emulator::api {
namespace {

std::atomic<unsigned> forks{0};

}  // namespace

unsigned fork_count() {
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return forks.load(std::memory_order_relaxed);
}

}  // namespace cuvmm::emulator::api
