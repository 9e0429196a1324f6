#include "emulator/sharing/closed_in_children.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>

namespace cuvmm::emulator::sharing {
namespace {

constexpr int empty = -1;

// Slots are found and taken without a lock, so that a fork finds them whole whatever other threads are doing, and waits
// for nobody. There are as many as were ever needed at once.
struct Slots {
  Slots() {
    for (std::atomic<int>& slot : each) slot.store(empty, std::memory_order_relaxed);
  }
  std::array<std::atomic<int>, 62> each;
  Slots* next = nullptr;
};

constinit std::atomic<Slots*> all{nullptr};

void close_all() {
  for (Slots* slots = all.load(std::memory_order_acquire); slots != nullptr; slots = slots->next)
    for (std::atomic<int>& slot : slots->each)
      if (const int descriptor = slot.exchange(empty, std::memory_order_relaxed); descriptor != empty)
        ::close(descriptor);
}

std::atomic<int>* taken_slot(int descriptor) {
  for (Slots* slots = all.load(std::memory_order_acquire); slots != nullptr; slots = slots->next)
    for (std::atomic<int>& slot : slots->each)
      if (int expected = empty; slot.compare_exchange_strong(expected, descriptor)) return &slot;
  return nullptr;
}

std::atomic<int>& slot_for(memory::FileDescriptor descriptor) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, close_all);
  static_cast<void>(registered);
  std::atomic<int>* slot = taken_slot(descriptor.get());
  if (slot == nullptr) {
    auto* const more = new Slots;
    more->each[0].store(descriptor.get(), std::memory_order_relaxed);
    slot = &more->each[0];
    more->next = all.load(std::memory_order_relaxed);
    while (!all.compare_exchange_weak(more->next, more, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }
  static_cast<void>(descriptor.release());
  return *slot;
}

}  // namespace

ClosedInChildren::ClosedInChildren(memory::FileDescriptor descriptor) : slot_(slot_for(std::move(descriptor))) {}

ClosedInChildren::~ClosedInChildren() {
  if (const int descriptor = slot_.exchange(empty); descriptor != empty) ::close(descriptor);
}

}  // namespace cuvmm::emulator::sharing
