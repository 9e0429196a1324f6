// A descriptor that forked children do not have.
#pragma once

#include <atomic>

#include "emulator/memory/file_descriptor.hpp"

namespace cuvmm::emulator::sharing {

// Closes the descriptor in every child that this process forks; there it is -1 from then on. A child that is made
// without the handlers of fork() has it until it executes a program. Thread-safe.
class ClosedInChildren {
 public:
  explicit ClosedInChildren(memory::FileDescriptor descriptor);
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;

  [[nodiscard]] int get() const noexcept { return slot_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int>& slot_;
};

}  // namespace cuvmm::emulator::sharing
