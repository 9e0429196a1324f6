// The process in which something was made.
#pragma once

#include <optional>
#include <string_view>

#include "driver/fork_count.hpp"
#include "refusal.hpp"

namespace cuvmm::pool {

// That a driver cannot be used where `call` was made.
[[gnu::cold]] inline Failure not_after_fork(std::string_view call) {
  return invalid_use(call, "", "A driver cannot be used in a forked child of the process that initialised it",
                     "Start the child with exec (in Python: multiprocessing with \"spawn\"), or open the driver in the "
                     "child alone",
                     "NOT-AFTER-FORK");
}

// Remembers the process that it is made in. Thread-safe; makes no system call when asked.
class HomeProcess {
 public:
  // Whether this is a forked child of it.
  [[nodiscard]] bool left() const noexcept { return forks_ != driver::fork_count(); }
  // Throws InvalidUse where it is.
  void refuse_elsewhere(std::string_view call) const {
    if (left()) [[unlikely]]
      raise(not_after_fork(call));
  }

 private:
  const unsigned forks_ = driver::fork_count();
};

// What the pointer of an owner points to; throws InvalidUse where it owns nothing any more, and in a forked child of
// the process that it was made in.
template <class Pointer>
[[nodiscard]] auto& owned_here(const Pointer& pointer, std::string_view call, std::string_view what) {
  auto& object = owned(pointer, call, what);
  object.home().refuse_elsewhere(call);
  return object;
}

// The same as a value.
template <class Pointer>
[[nodiscard]] std::optional<Failure> refusal_here(const Pointer& pointer, std::string_view call,
                                                  std::string_view what) {
  if (!pointer) [[unlikely]]
    return owns_nothing(call, what);
  if (pointer->home().left()) [[unlikely]]
    return not_after_fork(call);
  return std::nullopt;
}

}  // namespace cuvmm::pool
