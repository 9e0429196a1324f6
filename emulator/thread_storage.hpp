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
    explicit Reaper(T** its_place) noexcept : place(its_place) {}
    Reaper(const Reaper&) = delete;
    Reaper& operator=(const Reaper&) = delete;
    ~Reaper() {
      if (::gettid() != ::getpid()) delete std::exchange(*place, nullptr);
    }
    T** place;
  };
  thread_local Reaper reaper(&object);
  static_cast<void>(reaper);
  if (object == nullptr) object = new T;
  return *object;  // NOLINT(clang-analyzer-cplusplus.NewDelete): the reaper acts when the thread ends, not here
}

}  // namespace cuvmm::emulator
