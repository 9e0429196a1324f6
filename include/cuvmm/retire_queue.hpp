// Releases that wait for the device.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "cuvmm/driver.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/stream_uses.hpp"

namespace cuvmm {

class EventPool;

struct RetireQueueOptions {
  std::size_t max_pending = 1024;                                  // how many owners it keeps at most, at least 1
  std::chrono::nanoseconds full_wait = std::chrono::seconds(10);   // how long retiring waits for room, at least 0
  std::chrono::nanoseconds drain_wait = std::chrono::seconds(10);  // how long the destructor waits, at least 0
};

// Keeps owners (a Mapping, say) until the device has done the work that may use what they own, then destroys them.
// Unmapping does not wait for the device (cuMemUnmap), so this does. A MappedRange that has a queue retires by itself:
// its program only polls.
//
//   queue->retire(std::move(mapping), uses.so_far(), bytes);  // uses: the StreamUses that knows who uses the mapping
//   queue->poll();                                            // now and then
//
// There is no thread behind it: retire(), poll(), drain_*() and reclaim() release what is done by then. What is done is
// released in the order in which it was retired, and does not wait for what was retired earlier and is not done.
// Failures of contexts go to the clean-up failure handler; see PendingWork.
//
// Thread-safe. No lock is held while the driver is called or an owner destroyed, so that owners may call the queue
// again; they should not own it.
class RetireQueue {
 public:
  // Throws InvalidUse for options out of range.
  [[nodiscard]] static std::shared_ptr<RetireQueue> create(const Driver& driver,
                                                           const RetireQueueOptions& options = {});

  RetireQueue(const RetireQueue&) = delete;
  RetireQueue& operator=(const RetireQueue&) = delete;
  RetireQueue(RetireQueue&&) = delete;
  RetireQueue& operator=(RetireQueue&&) = delete;
  // Drains. What is not done by then, or held for a capture, is left alone for ever, never unmapped under work, and
  // reported to the clean-up failure handler.
  ~RetireQueue();

  // Destroys `owner` as soon as `work` is done: now, if it is, and by one of the calls below otherwise. `bytes` is how
  // much memory that gives back, for pending_bytes() and reclaim(). Where the queue is full, it releases what is done,
  // waits for room as long as the options say, and then throws TimedOut. Throws InvalidUse for work of another driver,
  // NotPermitted for a full queue within a host function. Whatever is thrown, owner and work are still the caller's.
  template <class Owner>
  requires(!std::is_reference_v<Owner> && !std::is_const_v<Owner>) void retire(Owner&& owner, PendingWork&& work,
                                                                               std::size_t bytes = 0) {
    static_assert(std::is_nothrow_move_constructible_v<Owner> && std::is_nothrow_destructible_v<Owner>);
    retire_as<Kept<Owner>>(std::forward<Owner>(owner), std::move(work), bytes);
  }

  // The same for anything that is called, once, instead of destroyed. An exception that it throws goes to the clean-up
  // failure handler. Throws InvalidUse for an empty std::function or a null pointer.
  template <class Callable>
  requires(!std::is_reference_v<Callable> && !std::is_const_v<Callable> &&
           std::is_invocable_v<Callable&>) void retire_call(Callable&& callable, PendingWork&& work,
                                                            std::size_t bytes = 0) {
    static_assert(std::is_nothrow_move_constructible_v<Callable> && std::is_nothrow_destructible_v<Callable>);
    if (has_no_target(callable)) raise_no_target();
    retire_as<Called<Callable>>(std::forward<Callable>(callable), std::move(work), bytes);
  }

  // Releases what is done and answers how many that were. Never waits for the device.
  std::size_t poll();

  // Releases all, waiting for its work. Failures: TimedOut, which tells what is left; InvalidUse as soon as all that is
  // left is held for captures; NotPermitted within a host function. A drain that leaves nothing gives idle events and
  // primary contexts back, too.
  [[nodiscard]] Result<void> drain_until(std::chrono::steady_clock::time_point deadline);
  [[nodiscard]] Result<void> drain_for(std::chrono::nanoseconds duration);

  // Releases what is done until at least so many bytes were given back, waiting for more up to the deadline; answers
  // how many bytes this call gave back. For use before an out-of-memory is reported.
  std::size_t reclaim(std::size_t bytes, std::chrono::steady_clock::time_point deadline);

  // Nothing of that capture runs any more; see StreamUses::graph_gone. Releases nothing by itself.
  void graph_gone(CaptureId capture) noexcept;

  // What was retired and is not given back yet, that which is being destroyed at the moment included.
  [[nodiscard]] std::size_t pending() const noexcept;
  [[nodiscard]] std::size_t pending_bytes() const noexcept;

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }

 private:
  // What was retired, without its type.
  class Retired {
   public:
    Retired() = default;
    Retired(const Retired&) = delete;
    Retired& operator=(const Retired&) = delete;
    Retired(Retired&&) = delete;
    Retired& operator=(Retired&&) = delete;
    virtual ~Retired() = default;
    virtual void release() noexcept = 0;
  };
  template <class Owner>
  class Kept final : public Retired {
   public:
    void keep(Owner&& owner) noexcept { owner_.emplace(std::move(owner)); }
    void release() noexcept override { owner_.reset(); }

   private:
    std::optional<Owner> owner_;
  };
  template <class Callable>
  class Called final : public Retired {
   public:
    void keep(Callable&& callable) noexcept { callable_.emplace(std::move(callable)); }
    void release() noexcept override {
      call_and_report([](void* callable) { std::invoke(*static_cast<Callable*>(callable)); }, &*callable_);
      callable_.reset();
    }

   private:
    std::optional<Callable> callable_;
  };
  struct Entry {
    std::unique_ptr<Retired> retired;
    PendingWork work;
    std::size_t bytes = 0;
    bool asked = false;  // a thread is asking whether it is done
  };
  struct Batch;
  struct Leaked;
  struct Pass;
  struct Remaining {
    std::size_t entries = 0;
    std::size_t bytes = 0;
    std::size_t held = 0;  // entries that captures hold
    bool others_are_releasing = false;
  };
  using Entries = std::list<Entry>;

  RetireQueue(const Driver& driver, const RetireQueueOptions& options);

  // All that can fail comes before the move.
  template <class Holder, class Thing>
  void retire_as(Thing&& thing, PendingWork&& work, std::size_t bytes) {
    Entries made(1);
    auto holder = std::make_unique<Holder>();
    const bool at_once = admit(work);
    holder->keep(std::forward<Thing>(thing));
    if (at_once) return holder->release();
    Entry& entry = made.front();
    entry.retired = std::move(holder);
    entry.work = std::move(work);
    entry.bytes = bytes;
    append(made);
  }

  template <class Callable>
  static bool has_no_target(const Callable&) noexcept {
    return false;
  }
  template <class Signature>
  static bool has_no_target(const std::function<Signature>& function) noexcept {
    return !function;
  }
  template <class Function>
  static bool has_no_target(Function* const& function) noexcept {
    return function == nullptr;
  }
  [[noreturn]] static void raise_no_target();
  static Leaked& leaked();
  static void call_and_report(void (*call)(void*), void* callable) noexcept;
  bool admit(PendingWork& work);
  void append(Entries& made) noexcept;
  Pass release_done();
  bool others_are_releasing() const noexcept;
  Remaining remaining() const;

  Driver driver_;
  RetireQueueOptions options_;
  std::shared_ptr<EventPool> pool_;
  Leaked& leaked_ = leaked();

  mutable std::mutex mutex_;
  Entries entries_;           // in the order of their retirement
  std::size_t reserved_ = 0;  // places for entries that are about to be appended
  std::size_t entry_bytes_ = 0;
  Batch* batches_ = nullptr;  // those being released, by all threads
};

}  // namespace cuvmm
