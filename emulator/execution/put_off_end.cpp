#include "emulator/execution/put_off_end.hpp"

#include <utility>

namespace cuvmm::emulator::execution {

namespace {

// The calling thread's own.
struct State {
  const Scheduler* running = nullptr;
  void (*end)(void* owner) = nullptr;
  void* owner = nullptr;
};
thread_local State state;

}  // namespace

RunningHere::RunningHere(const Scheduler& scheduler) noexcept : before_(std::exchange(state.running, &scheduler)) {}

RunningHere::~RunningHere() {
  state.running = before_;
}

bool running_here(const Scheduler& scheduler) noexcept {
  return state.running == &scheduler;
}

void put_off_end(void (*end)(void* owner), void* owner) noexcept {
  state.end = end;
  state.owner = owner;
}

bool end_is_due() noexcept {
  return state.end != nullptr && state.running == nullptr;
}

void end_if_due() noexcept {
  if (end_is_due()) {
    const auto end = std::exchange(state.end, nullptr);
    end(std::exchange(state.owner, nullptr));
  }
}

}  // namespace cuvmm::emulator::execution
