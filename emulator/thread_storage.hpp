// What belongs to a thread.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace cuvmm::emulator {

// The calling thread's own T, made when it is first asked for, and destroyed after the thread's thread-local objects,
// which may still call a driver. In the main thread it is never destroyed: static objects end later still, and may hold
// a context or a driver. Nor is it where the process has no thread-specific keys left.
template <class T>
T& of_this_thread() {
  thread_local T* object = nullptr;
  if (object != nullptr) return *object;
  struct Key {
    Key() noexcept {
      made = ::pthread_key_create(&key, [](void* place) {
               if (::gettid() != ::getpid()) delete std::exchange(*static_cast<T**>(place), nullptr);
             }) == 0;
    }
    pthread_key_t key{};
    bool made = false;
  };
  static const Key key;
  object = new T;
  if (key.made) ::pthread_setspecific(key.key, &object);
  return *object;
}

}  // namespace cuvmm::emulator
