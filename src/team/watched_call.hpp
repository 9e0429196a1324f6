// A driver call that nobody can cancel, on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cuvmm/result.hpp"
#include "cuvmm/sharing/deadline.hpp"

namespace cuvmm::team {

// Work that may never return. Whoever waits for it can cease to: then the thread goes on by itself, and the work, with
// all that it has captured, is destroyed by that thread when it has returned. So let it share what it uses.
//
// One thread at a time uses an object. Destruction waits for nothing.
class WatchedCall {
 public:
  // Begins at once. `what`: the driver calls, for messages: "cuMulticastBindMem". Fails where the system gives no
  // thread.
  [[nodiscard]] static Result<WatchedCall> start(const std::string& what, std::function<Result<void>()> work);

  WatchedCall(WatchedCall&&) noexcept = default;
  WatchedCall& operator=(WatchedCall&&) = delete;
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;
  ~WatchedCall();

  // Waits until it has returned, and by then the work is destroyed. Whether it has, before the deadline.
  [[nodiscard]] bool wait(const sharing::Deadline& deadline);
  // What the work answered; after wait() only.
  [[nodiscard]] const Result<void>& result() const noexcept;
  // TimedOut, of a call that has not returned: the thread, what it is in, and for how long.
  [[nodiscard]] Failure blocked() const;

 private:
  class State;
  explicit WatchedCall(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace cuvmm::team
