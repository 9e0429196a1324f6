// What belongs to a thread.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace cuvmm::emulator {

// What ends a thread's own T: a thread-specific key, made while the program or the library is loaded, since a fork in
// the midst of making it at its first use would leave the child waiting for it.
template <class T>
struct ThreadReaper {
  ThreadReaper() noexcept
      : made(::pthread_key_create(&key, [](void* place) {
               if (::gettid() != ::getpid()) delete std::exchange(*static_cast<T**>(place), nullptr);
             }) == 0) {}
  pthread_key_t key{};
  bool made;
  static const ThreadReaper instance;
};
template <class T>
const ThreadReaper<T> ThreadReaper<T>::instance;

// The calling thread's own T, made when it is first asked for, and destroyed after the thread's thread-local objects,
// which may still call a driver. In the main thread it is never destroyed: static objects end later still, and may hold
// a context or a driver. Nor is it where the process has no thread-specific keys left.
template <class T>
T& of_this_thread() {
  thread_local T* object = nullptr;
  if (object != nullptr) return *object;
  object = new T;
  if (ThreadReaper<T>::instance.made) ::pthread_setspecific(ThreadReaper<T>::instance.key, &object);
  return *object;
}

}  // namespace cuvmm::emulator
