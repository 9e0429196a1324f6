// Events that are used again and again, and the contexts that they belong to.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cuvmm/error.hpp"
#include "driver/interface.hpp"

namespace cuvmm {

// The events of one context. A primary context is retained as long as this lives, so that it is not destroyed while
// work of it is open, nor its handle given to a context of a new life while idle events of the old one are kept.
// Thread-safe.
class ContextEvents {
 public:
  // Finds out what kind of context it is; throws Error if the driver does not tell.
  ContextEvents(std::shared_ptr<driver::Interface> interface, abi::CUcontext context);
  ~ContextEvents();
  ContextEvents(const ContextEvents&) = delete;
  ContextEvents& operator=(const ContextEvents&) = delete;
  ContextEvents(ContextEvents&&) = delete;
  ContextEvents& operator=(ContextEvents&&) = delete;

  [[nodiscard]] driver::Interface& interface() const noexcept { return *interface_; }
  [[nodiscard]] abi::CUcontext handle() const noexcept { return context_; }
  [[nodiscard]] bool primary() const noexcept { return primary_of_.has_value(); }

  // Whether a created context has been destroyed: touching its streams or making it current crashes the driver then,
  // asking its events does not. A primary one is kept alive.
  [[nodiscard]] bool gone() const noexcept;

  // An idle event, or null.
  [[nodiscard]] abi::CUevent take() noexcept;
  // A new one (cuEventCreate); the context has to be current.
  [[nodiscard]] abi::CUresult create(abi::CUevent* event) noexcept;
  // Back to the idle ones. It may be open: recording it again is legal.
  void give_back(abi::CUevent event) noexcept;
  // Destroys it; that it is gone with its context is no failure.
  void destroy(abi::CUevent event) noexcept;

  // Passes what the context failed with to the clean-up failure handler, the first time.
  void report_once(const Failure& failure) noexcept;

 private:
  // The device whose primary context this is, retained once more by this call; nothing for a created context.
  std::optional<abi::CUdevice> retain_if_primary();

  std::shared_ptr<driver::Interface> interface_;
  abi::CUcontext context_;
  abi::CUevent witness_ = nullptr;  // of a created context: tells whether that is alive
  std::optional<abi::CUdevice> primary_of_;
  std::atomic<bool> failure_reported_ = false;

  std::mutex mutex_;
  std::vector<abi::CUevent> idle_;
};

// An event that was recorded, and that several may wait for; idle again when the last of them lets go.
class RecordedEvent {
 public:
  RecordedEvent(std::shared_ptr<ContextEvents> context, abi::CUevent event) noexcept
      : context_(std::move(context)), event_(event) {}
  ~RecordedEvent() {
    if (event_ != nullptr) context_->give_back(event_);
  }
  RecordedEvent(const RecordedEvent&) = delete;
  RecordedEvent& operator=(const RecordedEvent&) = delete;
  RecordedEvent(RecordedEvent&&) = delete;
  RecordedEvent& operator=(RecordedEvent&&) = delete;

  [[nodiscard]] const std::shared_ptr<ContextEvents>& context() const noexcept { return context_; }
  [[nodiscard]] abi::CUevent handle() const noexcept { return event_; }

  // Destroys the event: one that is not to be used again.
  void discard() noexcept { context_->destroy(std::exchange(event_, nullptr)); }

  // Whether somebody has seen it done: then the driver need not be asked again.
  [[nodiscard]] bool seen_done() const noexcept { return done_.load(std::memory_order_acquire); }
  void set_done() noexcept { done_.store(true, std::memory_order_release); }

 private:
  std::shared_ptr<ContextEvents> context_;
  abi::CUevent event_;
  std::atomic<bool> done_ = false;
};

// All contexts of a driver that events were needed in: one for a driver, shared by those who have work of it.
// Thread-safe.
class EventPool {
 public:
  // The driver's pool, which lives as long as somebody has it.
  [[nodiscard]] static std::shared_ptr<EventPool> of(const std::shared_ptr<driver::Interface>& interface);

  explicit EventPool(std::shared_ptr<driver::Interface> interface) noexcept : interface_(std::move(interface)) {}

  [[nodiscard]] const std::shared_ptr<driver::Interface>& interface() const noexcept { return interface_; }

  // The events of a context that is alive. Throws Error.
  [[nodiscard]] std::shared_ptr<ContextEvents> context(abi::CUcontext handle);

  // Lets go of primary contexts in which nothing is remembered or open.
  void trim() noexcept;

 private:
  // Primary contexts are kept for the next time. Created ones are not: their owner may destroy them as soon as nobody
  // has work of them, and a new context may get the same handle.
  struct Known {
    std::weak_ptr<ContextEvents> events;
    std::shared_ptr<ContextEvents> kept;
  };

  std::shared_ptr<ContextEvents> find(abi::CUcontext handle);

  std::shared_ptr<driver::Interface> interface_;
  std::mutex mutex_;
  std::map<abi::CUcontext, Known> contexts_;
};

}  // namespace cuvmm
