// What belongs to a thread.
#pragma once

#include <unistd.h>

#include <utility>

namespace cuvmm::emulator {

// The calling thread's own T, made when it is first asked for. In the main thread it is never destroyed: static objects
// end after thread-local ones, and may still hold a context or a driver.
template <class T>
T& of_this_thread() {
  thread_local T* object = nullptr;
  struct Reaper {
    T** place;
    ~Reaper() {
      if (::gettid() != ::getpid()) delete std::exchange(*place, nullptr);
    }
  };
  thread_local Reaper reaper{&object};
  static_cast<void>(reaper);
  if (object == nullptr) object = new T;
  return *object;
}

}  // namespace cuvmm::emulator
