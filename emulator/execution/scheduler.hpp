// Runs the operations of streams: in order within a stream, as far as their dependencies allow, on worker threads or by
// single steps. It knows streams, operations and completions; capture, events and graphs are the Engine's.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "emulator/execution/context.hpp"
#include "emulator/execution/scheduling.hpp"
#include "emulator/execution/stream.hpp"

namespace cuvmm::emulator::execution {

// Thread-safety: one mutex guards everything here and all state of contexts, streams, events and captures. Functions
// that take a Lock must be called by the thread that made it; no function holds it while an operation runs.
class Scheduler {
 public:
  using RetryClock = std::chrono::steady_clock;

  explicit Scheduler(const Scheduling& scheduling);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  // Drops what is pending and waits for what is running. No other thread may be in a call. An operation must not end
  // the scheduler that runs it: see put_off_end.hpp.
  ~Scheduler();

  // Holds the mutex. Finished operations are destroyed after it is released, since what they hold may call back.
  class Lock {
   public:
    explicit Lock(Scheduler& scheduler) : held_(scheduler.mutex_) {}
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    Lock(Lock&&) = delete;
    Lock& operator=(Lock&&) = delete;
    ~Lock() {
      held_.unlock();
      let_go();
    }

    // Takes the graph of a capture that has ended, and lets it go when the mutex is released.
    void keep(std::shared_ptr<Capture> capture) noexcept;

   private:
    friend class Scheduler;
    void let_go() noexcept;
    template <typename Function>
    void without(Function&& function) {
      held_.unlock();
      finished_.clear();
      let_go();
      function();
      held_.lock();
    }
    std::list<PendingOperation> finished_;
    std::shared_ptr<Capture> kept_;  // and what was kept before, by Capture::kept_before
    std::unique_lock<std::mutex> held_;
  };

  [[nodiscard]] const Scheduling& scheduling() const noexcept { return scheduling_; }
  [[nodiscard]] bool stepped() const noexcept { return scheduling_.mode == Scheduling::Mode::stepped; }

  void add_context(Lock&, std::shared_ptr<Context> context);
  // Drops the context's pending operations, waits for those that run, and lets go of its streams.
  void destroy_context(Lock& lock, const std::shared_ptr<Context>& context);

  // Makes `fault` the sticky error of the group's contexts that have none, and drops what is pending in them.
  void fail_contexts(Lock& lock, FaultGroup group, const Fault& fault);

  // The first fault of the group, be the contexts gone that had it.
  [[nodiscard]] std::optional<Fault> fault_of(const Lock&, FaultGroup group) const;

  // Appends to the stream's queue. An operation without `run` is a mark: it is finished by itself as soon as its turn
  // comes. `wait_here`: the caller will wait() for the stream and run the operation itself, so no worker is called.
  std::shared_ptr<Completion> enqueue(Lock& lock, const std::shared_ptr<Stream>& stream, PendingOperation pending,
                                      bool wait_here = false);

  // Marks `completion` as done and lets its dependents go on.
  void complete(Lock& lock, Completion& completion);

  // Waits until `target` is done or `context` has failed or is destroyed, and answers CUDA_SUCCESS or that error
  // once no operation of the context runs any more, host functions aside (LAUNCH_TIMEOUT: see Scheduling::stall_limit).
  // Helps by running operations: in stepped mode any, else `stream`'s.
  [[nodiscard]] abi::CUresult wait(Lock& lock, const Completion& target, const Context& context,
                                   const std::shared_ptr<Stream>& stream);

  // Threaded mode, where no worker can be had: runs an operation that may go, if there is one, so that callers who poll
  // come to an end. Else does nothing.
  void help_out(Lock& lock);

  // Waits until no operation of the context runs, host functions aside. For contexts that start no more: failed ones.
  void await_quiet(Lock& lock, const Context& context);

  // Stepped mode only.
  Step step(Lock& lock);
  // Steps until nothing is left, or until all that is left has been tried in vain.
  void run_until_idle(Lock& lock);
  [[nodiscard]] std::vector<TraceEntry> take_trace(Lock&);

  // Lets a stream that was destroyed go, once it is drained.
  void forget_if_drained(Lock&, const Stream& stream);

  [[nodiscard]] const std::vector<std::shared_ptr<Context>>& contexts(const Lock&) const noexcept { return contexts_; }
  [[nodiscard]] bool nothing_unfinished() const noexcept { return unfinished_.load(std::memory_order_acquire) == 0; }
  [[nodiscard]] std::size_t worker_count(const Lock&) const noexcept { return live_workers_; }

 private:
  // What happens to work once it is accepted needs no memory, and so cannot fail halfway.
  void advance(Lock& lock, const std::shared_ptr<Stream>& stream);
  void advance(Lock& lock, StreamList streams);
  void bring_forward(Lock& lock, const std::shared_ptr<Stream>& stream, StreamList& released);
  void mark_done(Completion& completion, StreamList& released);
  void finish_oldest(Lock& lock, Stream& stream, StreamList& released);
  bool may_go(const std::shared_ptr<Stream>& stream);
  void list_as_ready(const std::shared_ptr<Stream>& stream);
  void make_ready(const std::shared_ptr<Stream>& stream);
  void rest(const std::shared_ptr<Stream>& stream);
  void unlist(const std::shared_ptr<Stream>& stream);
  Step execute(Lock& lock, const std::shared_ptr<Stream>& stream);
  void fail(Lock& lock, Stream& stream, const PendingOperation& failed, const Outcome& outcome);
  void drop_pending(Lock& lock, Context& context);
  void sort_out(Lock& lock, const std::shared_ptr<Stream>& stream);
  std::chrono::nanoseconds timestamp();
  std::uint64_t random_below(std::uint64_t bound);
  void wait_for_progress(Lock& lock, const Stream* own);
  std::shared_ptr<Stream> claimable(const std::shared_ptr<Stream>& stream) const;
  [[nodiscard]] bool left_alone() const noexcept { return workers_refused_ && idle_workers_ == 0; }

  // Worker threads (scheduler_workers.cpp).
  void call_worker();
  void work();
  void work_until_unneeded();
  std::shared_ptr<Stream> next_for_worker();
  void join_ended_workers();

  const Scheduling scheduling_;
  std::mutex mutex_;
  std::condition_variable progress_;  // an operation was finished, tried in vain or dropped
  std::condition_variable work_;      // for idle workers
  std::vector<std::shared_ptr<Context>> contexts_;
  std::map<std::uint64_t, std::optional<Fault>> group_faults_;  // by FaultGroup::value; of each that has a context
  ReadyStreams ready_;
  RestingStreams retrying_;
  std::uint64_t next_place_ = 0;
  std::atomic<std::size_t> unfinished_{0};
  std::size_t waiting_threads_ = 0;
  std::chrono::nanoseconds last_timestamp_{};
  std::uint64_t random_state_;
  std::vector<TraceEntry> trace_;

  std::list<std::thread> workers_;
  std::list<std::thread> ended_workers_;
  std::size_t live_workers_ = 0;
  std::size_t idle_workers_ = 0;
  bool workers_refused_ = false;  // whether the system had no thread when one was last asked for
  bool stopping_ = false;
};

}  // namespace cuvmm::emulator::execution
