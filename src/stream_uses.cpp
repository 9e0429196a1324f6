#include "cuvmm/stream_uses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "clean_up.hpp"
#include "driver/call.hpp"
#include "pending_work_state.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

class StreamUses::State {
 public:
  explicit State(const Driver& driver) : pool_(EventPool::of(driver.shared_interface())) {}

  [[nodiscard]] driver::Interface& interface() const noexcept { return *pool_->interface(); }
  [[nodiscard]] const std::shared_ptr<EventPool>& pool() const noexcept { return pool_; }

  [[nodiscard]] std::shared_ptr<RememberedStream> find(CUstream_st* stream, abi::CUcontext current) {
    const std::lock_guard lock(mutex_);
    return find_locked(stream, current);
  }

  void remember(CUstream_st* stream, std::shared_ptr<ContextEvents> context) {
    const abi::CUcontext current = context->handle();
    auto made = std::make_shared<RememberedStream>(same_name(stream), std::move(context));
    const std::lock_guard lock(mutex_);
    if (!find_locked(stream, current)) streams_.push_back(std::move(made));
  }

  void forget(const std::shared_ptr<RememberedStream>& stream, const std::shared_ptr<RecordedEvent>& last) {
    add(last);
    const std::lock_guard lock(mutex_);
    std::erase(streams_, stream);
  }

  // Keeps an event for all snapshots to come, until it is done.
  void add(const std::shared_ptr<RecordedEvent>& event) {
    if (!event) return;
    forget_done();
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }

  std::shared_ptr<HeldCapture> hold(CaptureId id) {
    const std::lock_guard lock(mutex_);
    const auto held =
        std::find_if(captures_.begin(), captures_.end(), [&](const auto& each) { return each->id == id; });
    if (held != captures_.end()) return *held;
    captures_.push_back(std::make_shared<HeldCapture>(id));
    return captures_.back();
  }

  void let_go(CaptureId id) noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto& held : captures_)
      if (held->id == id) held->gone = true;
    forget_gone();
  }

  struct Snapshot {
    std::vector<std::shared_ptr<RememberedStream>> streams;
    std::vector<std::shared_ptr<RecordedEvent>> events;
    std::vector<std::shared_ptr<HeldCapture>> captures;
  };
  [[nodiscard]] Snapshot snapshot() {
    const std::lock_guard lock(mutex_);
    std::erase_if(events_, [](const auto& event) { return event->seen_done(); });
    forget_gone();
    return {streams_, events_, captures_};
  }

 private:
  [[nodiscard]] std::shared_ptr<RememberedStream> find_locked(CUstream_st* stream, abi::CUcontext current) const {
    for (const auto& each : streams_)
      if (each->is(stream, current)) return each;
    return nullptr;
  }

  // A queue may have been told, which shares what is held.
  void forget_gone() noexcept {
    std::erase_if(captures_, [](const auto& held) { return held->gone.load(); });
  }

  // So that a program which goes through streams does not pile events up.
  void forget_done() {
    std::vector<std::shared_ptr<RecordedEvent>> events;
    {
      const std::lock_guard lock(mutex_);
      if (events_.size() < ask_from_) return;
      events = events_;
    }
    const RelaxedCaptureMode relaxed(interface());
    if (relaxed.answer() != abi::CUDA_SUCCESS) return;
    for (const auto& event : events) {
      std::optional<Failure> failure;
      if (ask_for(*event, failure) != WorkAnswer::failed) continue;
      event->context()->report_once(*failure);
      event->set_done();
    }
    const std::lock_guard lock(mutex_);
    std::erase_if(events_, [](const auto& event) { return event->seen_done(); });
    ask_from_ = std::max(first_ask, 2 * events_.size());
  }

  static constexpr std::size_t first_ask = 16;

  const std::shared_ptr<EventPool> pool_;
  std::mutex mutex_;  // not held while the driver is called
  std::vector<std::shared_ptr<RememberedStream>> streams_;
  std::vector<std::shared_ptr<RecordedEvent>> events_;  // of forgotten streams and of others' events
  std::vector<std::shared_ptr<HeldCapture>> captures_;
  std::size_t ask_from_ = first_ask;
};

namespace {

// The capture that the stream is in.
std::optional<CaptureId> capture_of(driver::Interface& interface, CUstream_st* stream) {
  abi::CUstreamCaptureStatus status = abi::CU_STREAM_CAPTURE_STATUS_NONE;
  unsigned long long id = 0;
  const abi::CUresult code = interface.cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr);
  // What is captured is a stream that this default stream waits for; itself it cannot be.
  if (code == abi::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return std::nullopt;
  if (code != abi::CUDA_SUCCESS)
    raise(driver::describe_failure(interface, EntryPoint::cuStreamGetCaptureInfo, code,
                                   fmt::format("stream = {}", fmt::ptr(stream)), {}));
  if (status != abi::CU_STREAM_CAPTURE_STATUS_ACTIVE) return std::nullopt;
  return CaptureId{id};
}

abi::CUcontext current_context(driver::Interface& interface, const char* function) {
  abi::CUcontext current = nullptr;
  call<EntryPoint::cuCtxGetCurrent>(interface, &current);
  if (current == nullptr)
    raise(invalid_use(function, "", "A context must be current: default streams and events are one's",
                      "Make one current: cuvmm::CurrentContext", "CONTEXT-CURRENT"));
  return current;
}

abi::CUcontext context_of(driver::Interface& interface, CUstream_st* stream) {
  abi::CUcontext context = nullptr;
  call<EntryPoint::cuStreamGetCtx>(interface, stream, &context);
  return context;
}

// A stream of the current context, for one event.
class PassingStream {
 public:
  explicit PassingStream(driver::Interface& interface) : interface_(interface) {
    call<EntryPoint::cuStreamCreate>(interface_, &stream_, abi::CU_STREAM_NON_BLOCKING);
  }
  ~PassingStream() { clean_up<EntryPoint::cuStreamDestroy>(interface_, stream_); }
  PassingStream(const PassingStream&) = delete;
  PassingStream& operator=(const PassingStream&) = delete;
  PassingStream(PassingStream&&) = delete;
  PassingStream& operator=(PassingStream&&) = delete;

  [[nodiscard]] abi::CUstream handle() const noexcept { return stream_; }

 private:
  driver::Interface& interface_;
  abi::CUstream stream_ = nullptr;
};

[[noreturn]] void raise_not_recorded(driver::Interface& interface, const char* function, CUstream_st* stream,
                                     const RememberedStream::Recorded& recorded) {
  const std::string argument = fmt::format("stream = {}", fmt::ptr(stream));
  if (recorded.capturing)
    raise(invalid_use(function, argument, "A stream that is being captured cannot tell where its work has come to",
                      "End the capture first", "CAPTURE-NOT-OBSERVED"));
  if (recorded.entry) raise(driver::describe_failure(interface, *recorded.entry, recorded.code, argument, {}));
  raise(invalid_use(function, argument, "Nothing could be recorded in the stream", "Try again"));
}

}  // namespace

StreamUses::StreamUses(const Driver& driver) : state_(std::make_unique<State>(driver)), driver_(driver) {}
StreamUses::~StreamUses() = default;

std::optional<CaptureId> StreamUses::used_on(CUstream_st* stream) {
  used_ = true;
  driver::Interface& interface = state_->interface();
  const bool is_default = is_default_stream(stream);
  const abi::CUcontext current = is_default ? current_context(interface, "StreamUses::used_on") : nullptr;
  const std::optional<CaptureId> capture = capture_of(interface, stream);
  if (!state_->find(stream, current))
    state_->remember(stream, state_->pool()->context(is_default ? current : context_of(interface, stream)));
  if (capture) state_->hold(*capture);
  return capture;
}

void StreamUses::no_longer_used_on(CUstream_st* stream) {
  driver::Interface& interface = state_->interface();
  const abi::CUcontext current =
      is_default_stream(stream) ? current_context(interface, "StreamUses::no_longer_used_on") : nullptr;
  const auto remembered = state_->find(stream, current);
  if (!remembered) return;
  RememberedStream::Recorded recorded = remembered->record_last();
  if (recorded.answer == WorkAnswer::open && recorded.code == abi::CUDA_ERROR_INVALID_HANDLE)
    recorded = remembered->wait_for_context();
  if (recorded.answer == WorkAnswer::open || recorded.answer == WorkAnswer::blocked)
    raise_not_recorded(interface, "StreamUses::no_longer_used_on", stream, recorded);
  state_->forget(remembered, recorded.event);
  if (recorded.answer == WorkAnswer::failed)
    remembered->context().report_once(driver::describe_failure(interface, *recorded.entry, recorded.code, "", {}));
}

std::optional<CaptureId> StreamUses::used_until(CUevent_st* event) {
  used_ = true;
  driver::Interface& interface = state_->interface();
  const auto context = state_->pool()->context(current_context(interface, "StreamUses::used_until"));
  const PassingStream stream(interface);
  call<EntryPoint::cuStreamWaitEvent>(interface, stream.handle(), event, 0U);
  // An event of a capture has drawn the stream into it, which does no harm: it leaves again without having worked.
  if (const auto capture = capture_of(interface, stream.handle())) {
    state_->hold(*capture);
    return capture;
  }
  RememberedStream passing(stream.handle(), context);
  const RememberedStream::Recorded recorded = passing.record_last();
  if (recorded.answer != WorkAnswer::done)
    raise_not_recorded(interface, "StreamUses::used_until", stream.handle(), recorded);
  state_->add(recorded.event);
  return std::nullopt;
}

void StreamUses::graph_gone(CaptureId capture) noexcept {
  state_->let_go(capture);
}

PendingWork StreamUses::so_far() {
  if (!used_.load(std::memory_order_acquire)) return {};
  State::Snapshot snapshot = state_->snapshot();
  if (snapshot.streams.empty() && snapshot.events.empty() && snapshot.captures.empty()) return {};
  auto work = std::make_unique<PendingWork::State>(state_->pool());
  for (auto& event : snapshot.events) work->wait_for(std::move(event));
  for (auto& stream : snapshot.streams)
    if (const auto capture = work->wait_for(std::move(stream))) {
      auto held = state_->hold(*capture);
      auto& known = snapshot.captures;
      if (std::find(known.begin(), known.end(), held) == known.end()) known.push_back(std::move(held));
    }
  for (auto& capture : snapshot.captures) work->wait_for(std::move(capture));
  return PendingWork(std::move(work));
}

}  // namespace cuvmm
