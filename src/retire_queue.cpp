#include "cuvmm/retire_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>

#include "backoff.hpp"
#include "pending_work_state.hpp"
#include "refusal.hpp"
#include "report_exception.hpp"

namespace cuvmm {

// One thread's releases, on its stack; in the queue's list as long as they go on.
struct RetireQueue::Batch {
  Batch* next = nullptr;
  std::thread::id thread = std::this_thread::get_id();
  std::size_t entries = 0;
  std::size_t bytes = 0;
  int drains = 0;  // which its owners began, and which wait for the others

  class Draining;
};

// What queues had to leave alone, for ever, where leak checkers see that it is on purpose.
struct RetireQueue::Leaked {
  std::mutex mutex;
  Entries entries;
};

struct RetireQueue::Pass {
  std::size_t released = 0;
  std::size_t bytes = 0;
  bool blocked = false;  // nothing can be told within a host function
};

namespace {

Failure refusal(const char* call, std::string arguments, ErrorKind kind, std::string rule, std::string way_out,
                std::string_view rule_id = {}) {
  Failure failure = invalid_use(call, std::move(arguments), std::move(rule), std::move(way_out), rule_id);
  failure.kind = kind;
  return failure;
}

void check(const RetireQueueOptions& options) {
  const std::string arguments = fmt::format("max_pending = {}, full_wait = {} ns, drain_wait = {} ns",
                                            options.max_pending, options.full_wait.count(), options.drain_wait.count());
  if (options.max_pending == 0)
    raise(invalid_use("RetireQueue::create", arguments, "A queue must have room for at least one entry",
                      "Set max_pending to 1 or more"));
  if (options.full_wait.count() < 0 || options.drain_wait.count() < 0)
    raise(invalid_use("RetireQueue::create", arguments, "A wait cannot be negative",
                      "Set 0 for no wait, or how long at most"));
}

constexpr const char* wait_elsewhere = "Let another thread drain the queue";

}  // namespace

std::shared_ptr<RetireQueue> RetireQueue::create(const Driver& driver, const RetireQueueOptions& options) {
  check(options);
  return std::shared_ptr<RetireQueue>(new RetireQueue(driver, options));
}

RetireQueue::RetireQueue(const Driver& driver, const RetireQueueOptions& options)
    : driver_(driver), options_(options), pool_(EventPool::of(driver.shared_interface())) {}

RetireQueue::~RetireQueue() {
  try {
    const Result<void> drained = drain_for(options_.drain_wait);
    if (drained) return;
    Failure failure = drained.failure();
    failure.call = "~RetireQueue";
    failure.way_out =
        "What is left is leaked, since the device may still use it. Drain the queue before it is destroyed";
    report_cleanup_failure(failure);
  } catch (const std::exception&) {
    report_cleanup_failure(Failure{});
  }
  for (Entry& entry : entries_) entry.work = PendingWork();
  const std::lock_guard lock(leaked_.mutex);
  leaked_.entries.splice(leaked_.entries.end(), entries_);
}

// Never destroyed, and made before it is needed.
RetireQueue::Leaked& RetireQueue::leaked() {
  static Leaked& all = *new Leaked;
  return all;
}

void RetireQueue::call_and_report(void (*call)(void*), void* callable) noexcept {
  try {
    call(callable);
  } catch (...) {
    report_exception_of_callback("RetireQueue::retire_call", [] { return std::string("callable"); });
  }
}

void RetireQueue::raise_no_target() {
  raise(invalid_use("RetireQueue::retire_call", {}, "There is nothing to call: the function is empty",
                    "Pass one that has a target"));
}

// Whether the work is done; else there is a place for it in the queue.
bool RetireQueue::admit(PendingWork& work) {
  if (work.state_ && work.state_->pool() != pool_)
    raise(invalid_use("RetireQueue::retire", "", "The work must be of the queue's driver",
                      "Keep one queue for each driver"));
  if (work.is_done()) return true;
  const auto deadline = deadline_after(options_.full_wait);
  Backoff backoff;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (entries_.size() + reserved_ < options_.max_pending) {
        ++reserved_;
        return false;
      }
    }
    const Pass pass = release_done();
    if (pass.released > 0) continue;
    if (pass.blocked)
      raise(refusal("RetireQueue::retire", fmt::format("max_pending = {}", options_.max_pending),
                    ErrorKind::not_permitted, "The queue is full, and a host function must not wait for room",
                    wait_elsewhere, "NOT-IN-HOST-FUNCTION"));
    if (Backoff::Clock::now() >= deadline)
      raise(
          refusal("RetireQueue::retire",
                  fmt::format("max_pending = {}, full_wait = {} ns", options_.max_pending, options_.full_wait.count()),
                  ErrorKind::timed_out, "The queue is full, and nothing in it was done in time",
                  "Allow more entries or a longer wait; entries that captures hold wait for graph_gone"));
    backoff.pause(deadline);
  }
}

void RetireQueue::append(Entries& made) noexcept {
  const std::lock_guard lock(mutex_);
  --reserved_;
  entry_bytes_ += made.front().bytes;
  entries_.splice(entries_.end(), made);
}

// Each entry is asked by one thread at a time, without the lock; its place in the list is safe, since only that thread
// takes it out.
RetireQueue::Pass RetireQueue::release_done() {
  Pass pass;
  Entries done;
  Batch batch;
  std::unique_lock lock(mutex_);
  batch.next = std::exchange(batches_, &batch);
  {
    RelaxedOnDemand relaxed(driver_.interface());
    for (auto entry = entries_.begin(); entry != entries_.end() && !pass.blocked;) {
      const auto asked = entry;
      if (!asked->asked) {
        asked->asked = true;
        lock.unlock();
        const Progress progress = asked->work.state_->ask(relaxed);
        lock.lock();
        asked->asked = false;
        pass.blocked = progress == Progress::blocked;
        entry = std::next(asked);
        if (progress != Progress::done) continue;
        entry_bytes_ -= asked->bytes;
        batch.bytes += asked->bytes;
        ++batch.entries;
        done.splice(done.end(), entries_, asked);
      } else {
        ++entry;
      }
    }
    lock.unlock();
  }
  pass.released = batch.entries;
  pass.bytes = batch.bytes;
  while (!done.empty()) {
    Entry& oldest = done.front();
    const std::size_t bytes = oldest.bytes;
    oldest.retired->release();
    done.pop_front();
    const std::lock_guard held(mutex_);
    --batch.entries;
    batch.bytes -= bytes;
  }
  lock.lock();
  Batch** place = &batches_;
  while (*place != &batch) place = &(*place)->next;
  *place = batch.next;
  return pass;
}

std::size_t RetireQueue::poll() {
  return release_done().released;
}

// Those that this thread releases would wait for themselves. Where an owner of its own drains, those whose owners drain
// as well would wait for this thread.
bool RetireQueue::others_are_releasing() const noexcept {
  const auto self = std::this_thread::get_id();
  bool releasing_itself = false;
  for (const Batch* batch = batches_; batch != nullptr; batch = batch->next)
    releasing_itself = releasing_itself || (batch->entries > 0 && batch->thread == self);
  for (const Batch* batch = batches_; batch != nullptr; batch = batch->next)
    if (batch->entries > 0 && batch->thread != self && !(releasing_itself && batch->drains > 0)) return true;
  return false;
}

// Tells that the owners which this thread is releasing wait for the others.
class RetireQueue::Batch::Draining {
 public:
  explicit Draining(RetireQueue& queue) : queue_(queue) { add(1); }
  ~Draining() { add(-1); }
  Draining(const Draining&) = delete;
  Draining& operator=(const Draining&) = delete;
  Draining(Draining&&) = delete;
  Draining& operator=(Draining&&) = delete;

 private:
  void add(int by) {
    const std::lock_guard lock(queue_.mutex_);
    for (Batch* batch = queue_.batches_; batch != nullptr; batch = batch->next)
      if (batch->thread == std::this_thread::get_id()) batch->drains += by;
  }

  RetireQueue& queue_;
};

RetireQueue::Remaining RetireQueue::remaining() const {
  const std::lock_guard lock(mutex_);
  Remaining left;
  left.entries = entries_.size();
  left.bytes = entry_bytes_;
  left.others_are_releasing = others_are_releasing();
  for (const Entry& entry : entries_) left.held += entry.work.state_->held() ? 1 : 0;
  return left;
}

Result<void> RetireQueue::drain_until(std::chrono::steady_clock::time_point deadline) {
  Backoff backoff;
  const Batch::Draining draining(*this);
  for (;;) {
    const Pass pass = release_done();
    const Remaining left = remaining();
    if (left.entries == 0 && !left.others_are_releasing) {
      pool_->trim();
      return {};
    }
    const auto refuse = [&](ErrorKind kind, std::string rule, std::string way_out) {
      return refusal(
          "RetireQueue::drain_until",
          fmt::format("pending = {}, bytes = {}, held for captures = {}", left.entries, left.bytes, left.held), kind,
          std::move(rule), std::move(way_out));
    };
    if (pass.blocked)
      return refuse(ErrorKind::not_permitted, "A host function must not wait for the device, which waits for it",
                    wait_elsewhere);
    if (left.held == left.entries && !left.others_are_releasing)
      return refuse(ErrorKind::invalid_use,
                    "Graphs that were captured may use what is left at any time, so waiting does not end that",
                    "Destroy the graphs and what was instantiated from them, then call graph_gone");
    if (Backoff::Clock::now() >= deadline)
      return refuse(ErrorKind::timed_out, "The device had not done all work when the deadline came",
                    "Wait longer, or find what the streams wait for");
    backoff.pause(deadline);
  }
}

Result<void> RetireQueue::drain_for(std::chrono::nanoseconds duration) {
  return drain_until(deadline_after(duration));
}

std::size_t RetireQueue::reclaim(std::size_t bytes, std::chrono::steady_clock::time_point deadline) {
  Backoff backoff;
  std::size_t given_back = 0;
  for (;;) {
    const Pass pass = release_done();
    given_back += pass.bytes;
    if (given_back >= bytes || pass.blocked) return given_back;
    const Remaining left = remaining();
    const bool nothing_to_wait_for = left.held == left.entries;
    if (nothing_to_wait_for || Backoff::Clock::now() >= deadline) return given_back;
    backoff.pause(deadline);
  }
}

void RetireQueue::graph_gone(CaptureId capture) noexcept {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) entry.work.graph_gone(capture);
}

std::size_t RetireQueue::pending() const noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t count = entries_.size();
  for (const Batch* batch = batches_; batch != nullptr; batch = batch->next) count += batch->entries;
  return count;
}

std::size_t RetireQueue::pending_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = entry_bytes_;
  for (const Batch* batch = batches_; batch != nullptr; batch = batch->next) bytes += batch->bytes;
  return bytes;
}

}  // namespace cuvmm
