// Ending the owner of an engine while the calling thread runs one of the engine's operations, as a host function does
// that lets go of the last reference to its driver: the end waits for the operation, so it comes after it.
#pragma once

namespace cuvmm::emulator::execution {

class Scheduler;

// While it lives, the calling thread runs an operation of that scheduler.
class RunningHere {
 public:
  explicit RunningHere(const Scheduler& scheduler) noexcept;
  RunningHere(const RunningHere&) = delete;
  RunningHere& operator=(const RunningHere&) = delete;
  ~RunningHere();

 private:
  const Scheduler* before_;
};

// Whether the calling thread is running an operation of that scheduler.
[[nodiscard]] bool running_here(const Scheduler& scheduler) noexcept;

// Has `end(owner)` called by the calling thread once it runs no operation any more: when the worker thread ends, or the
// call that waits for the operation. One at a time: `owner` is what owns the engine whose operation the thread runs.
void put_off_end(void (*end)(void* owner), void* owner) noexcept;

// Whether something was put off that is due now.
[[nodiscard]] bool end_is_due() noexcept;

// Calls what was put off if it is due. Nothing of the engine or its owner may be touched afterwards.
void end_if_due() noexcept;

}  // namespace cuvmm::emulator::execution
