// A function with a stack of its own, which gives way in its midst and is gone on with later, by whatever thread.
#pragma once

#include <functional>
#include <memory>

namespace cuvmm::emulator::execution {

// Used by one thread at a time, its body in turn with whoever resumes it. The body must not give way within a catch
// block, nor keep the address of anything thread-local across that: it may go on in another thread.
class Fiber {
 public:
  // Nothing runs yet. Throws std::bad_alloc where the system has no room for a stack.
  explicit Fiber(std::function<void(Fiber&)> body);
  // A body that is not at its end is unwound: give_way() throws what only destructors should see.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  Fiber(Fiber&&) = delete;
  Fiber& operator=(Fiber&&) = delete;

  // Runs the body until it gives way or ends, and tells whether it has ended. What leaves the body is thrown here, and
  // has ended it. Not to be called again after the end.
  bool resume();

  // Called by the body: resume() returns, and the body goes on with the next one.
  void give_way();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cuvmm::emulator::execution
