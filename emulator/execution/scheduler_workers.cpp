// The scheduler's worker threads.
//
// What keeps a blocking or spinning operation from holding up other streams: whenever a stream is ready that no waiting
// thread will see to, there are at least as many idle workers as ready streams; and whenever one rests after `again`,
// at least one worker is idle and wakes when the rest is over.
#include <algorithm>
#include <atomic>
#include <exception>

#include "emulator/execution/put_off_end.hpp"
#include "emulator/execution/scheduler.hpp"

namespace cuvmm::emulator::execution {

namespace {

constexpr std::chrono::milliseconds idle_lifetime{200};

std::atomic<std::size_t> workers_of_process{0};

}  // namespace

std::size_t worker_threads() noexcept {
  return workers_of_process.load();
}

// Sees to it that some worker looks at the lists: an idle one is woken, or one more is made.
void Scheduler::call_worker() {
  if (idle_workers_ >= std::max<std::size_t>(ready_.size(), 1)) {
    work_.notify_one();
    return;
  }
  join_ended_workers();
  try {
    workers_.emplace_back([this] { work(); });
    ++live_workers_;
    workers_refused_ = false;
    work_.notify_one();
  } catch (const std::exception&) {
    // No thread, or memory for one, to be had: the workers there are go on when they can, and threads that wait or ask
    // run operations themselves.
    workers_refused_ = true;
    work_.notify_one();
    progress_.notify_all();
  }
}

// Ended workers have let go of the mutex or are about to, so that this is short.
void Scheduler::join_ended_workers() {
  for (std::thread& thread : ended_workers_) {
    thread.join();
  }
  ended_workers_.clear();
}

std::shared_ptr<Stream> Scheduler::next_for_worker() {
  while (!retrying_.empty() && retrying_.begin()->first <= RetryClock::now()) {
    const std::shared_ptr<Stream> stream = retrying_.begin()->second;
    unlist(stream);
    list_as_ready(stream);
  }
  return ready_.empty() ? nullptr : ready_.begin()->second;
}

void Scheduler::work() {
  ++workers_of_process;
  work_until_unneeded();
  --workers_of_process;
  end_if_due();  // after this nothing may be left of the scheduler
}

void Scheduler::work_until_unneeded() {
  Lock lock(*this);
  while (!stopping_ && !end_is_due()) {
    if (const auto stream = next_for_worker()) {
      execute(lock, stream);
      continue;
    }
    if (!lock.finished_.empty()) {
      lock.without([] {});  // let finished operations be destroyed before a long rest
      continue;
    }
    ++idle_workers_;
    bool timed_out = false;
    if (!retrying_.empty()) {
      const RetryClock::time_point until = retrying_.begin()->first;  // a copy: the entry may go meanwhile
      work_.wait_until(lock.held_, until);
    } else {
      timed_out = work_.wait_for(lock.held_, idle_lifetime) == std::cv_status::timeout;
    }
    --idle_workers_;
    if (timed_out && ready_.empty() && retrying_.empty()) {
      break;
    }
  }
  --live_workers_;
  const auto self = std::find_if(workers_.begin(), workers_.end(), [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  });
  if (self != workers_.end()) {  // else the destructor has taken it, to join it
    ended_workers_.splice(ended_workers_.end(), workers_, self);
  }
}

}  // namespace cuvmm::emulator::execution
