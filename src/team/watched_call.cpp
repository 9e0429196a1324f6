#include "team/watched_call.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "report_exception.hpp"

namespace cuvmm::team {

namespace {

constexpr const char* thread_name = "cuvmm-multicast";  // as debuggers and ps show it; 15 letters at most

Failure no_thread(const std::string& what, const std::system_error& error) {
  Failure failure;
  failure.call = what;
  failure.reason = fmt::format("the system gives no thread for it: {}", error.what());
  failure.way_out = "End other threads, or raise the limit (ulimit -u)";
  return failure;
}

// `otherwise`: where there is no memory left to say what was thrown.
Result<void> answer_of(const std::function<Result<void>()>& work, const Result<void>& otherwise) noexcept {
  try {
    return work();
  } catch (...) {
    try {
      return failure_of_current_exception();
    } catch (const std::bad_alloc&) {
      return otherwise;
    }
  }
}

}  // namespace

class WatchedCall::State {
 public:
  explicit State(std::string what) : what_(std::move(what)) {}

  void run(std::function<Result<void>()> work) {
    {
      const std::lock_guard lock(mutex_);
      id_ = ::gettid();
    }
    Result<void> answer = answer_of(work, out_of_memory_);
    work = nullptr;  // what it shares with who waits is theirs alone, once they are told
    const std::lock_guard lock(mutex_);
    result_ = std::move(answer);
    returned_ = true;
    changed_.notify_all();
  }

  bool wait(const sharing::Deadline& deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline.time(), [&] { return returned_; });
  }

  Failure blocked() {
    const std::lock_guard lock(mutex_);
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun_);
    Failure failure;
    failure.kind = ErrorKind::timed_out;
    failure.call = what_;
    failure.reason = fmt::format("thread {} ({}) of process {} has been in this call for {} ms", id_, thread_name,
                                 ::getpid(), since.count());
    failure.rule =
        "The driver waits there until all devices of the multicast object were added, and nobody can cancel that";
    failure.way_out =
        "Find out which rank's device is missing, or what its driver does; what the thread uses is given back when the "
        "call returns";
    return failure;
  }

  std::thread thread;
  Result<void> result_;

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_;
  const Result<void> out_of_memory_ = Failure{};
  const Clock::time_point begun_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  pid_t id_ = 0;
  bool returned_ = false;
};

Result<WatchedCall> WatchedCall::start(const std::string& what, std::function<Result<void>()> work) try {
  auto state = std::make_shared<State>(what);
  state->thread = std::thread([state, moved = std::move(work)]() mutable {
    ::pthread_setname_np(::pthread_self(), thread_name);
    state->run(std::move(moved));
  });
  return WatchedCall(std::move(state));
} catch (const std::system_error& error) {
  return no_thread(what, error);
}

WatchedCall::~WatchedCall() {
  if (state_ && state_->thread.joinable()) state_->thread.detach();
}

bool WatchedCall::wait(const sharing::Deadline& deadline) {
  if (!state_->wait(deadline)) return false;
  if (state_->thread.joinable()) state_->thread.join();
  return true;
}

const Result<void>& WatchedCall::result() const noexcept {
  return state_->result_;
}

Failure WatchedCall::blocked() const {
  return state_->blocked();
}

}  // namespace cuvmm::team
