#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "backoff.hpp"
#include "driver/result_names.hpp"
#include "made_current.hpp"
#include "pending_work_state.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::EntryPoint;

WorkAnswer ask_for(RecordedEvent& event, std::optional<Failure>& failure) {
  if (event.seen_done()) return WorkAnswer::done;
  driver::Interface& interface = event.context()->interface();
  abi::CUresult code = interface.cuEventQuery(event.handle());
  WorkAnswer answer = work_answer(EntryPoint::cuEventQuery, code);
  // Perhaps it is only that no context was current. A context that is gone must not be made current: that harms the
  // driver.
  if (code == abi::CUDA_ERROR_INVALID_CONTEXT && !event.context()->gone()) {
    const MadeCurrent current(interface, event.context()->handle());
    code = current.answer() == abi::CUDA_SUCCESS ? interface.cuEventQuery(event.handle()) : current.answer();
    answer = work_answer(EntryPoint::cuEventQuery, code);
  }
  if (answer == WorkAnswer::failed) {
    failure = driver::describe_failure(interface, EntryPoint::cuEventQuery, code,
                                       driver::format_given<EntryPoint::cuEventQuery>(event.handle()), {});
    // Answers at once, and when it has, no work of the context runs any more.
    static_cast<void>(interface.cuEventSynchronize(event.handle()));
  }
  if (answer == WorkAnswer::done || answer == WorkAnswer::over) event.set_done();
  return answer;
}

namespace {

bool finished(WorkAnswer answer) noexcept {
  return answer == WorkAnswer::over || answer == WorkAnswer::failed;
}

}  // namespace

std::optional<CaptureId> PendingWork::State::wait_for(std::shared_ptr<RememberedStream> stream) {
  awaited_.push_back({nullptr, std::move(stream)});
  const RememberedStream::Recorded recorded = record(awaited_.back());
  if (finished(recorded.answer)) awaited_.pop_back();
  return recorded.capture;
}

void PendingWork::State::fail(const std::shared_ptr<ContextEvents>& context, Failure failure) {
  report();
  failure_ = std::move(failure);
  failed_ = context;
}

RememberedStream::Recorded PendingWork::State::record(Awaited& awaited) {
  RememberedStream::Recorded recorded = awaited.stream->try_record();
  last_entry_ = recorded.entry;
  last_code_ = recorded.code;
  if (recorded.answer == WorkAnswer::failed)
    fail(awaited.stream->shared_context(),
         driver::describe_failure(awaited.stream->context().interface(), *recorded.entry, recorded.code, "", {}));
  awaited.event = recorded.event;
  return recorded;
}

WorkAnswer PendingWork::State::query(RecordedEvent& event) {
  std::optional<Failure> failure;
  const WorkAnswer answer = ask_for(event, failure);
  if (failure) fail(event.context(), *std::move(failure));
  return answer;
}

Progress PendingWork::State::ask(RelaxedOnDemand& relaxed) noexcept {
  try {
    return ask_all(relaxed);
  } catch (const std::exception&) {
    return Progress::open;  // no memory to ask with: next time
  }
}

Progress PendingWork::State::ask_all(RelaxedOnDemand& relaxed) {
  // What is to be recorded comes first: the sooner, the less it waits for.
  for (std::size_t index = 0; index < awaited_.size();) {
    if (!awaited_[index].event) {
      const WorkAnswer answer = record(awaited_[index]).answer;
      if (answer == WorkAnswer::blocked) return Progress::blocked;
      if (finished(answer)) {
        std::swap(awaited_[index], awaited_.back());
        awaited_.pop_back();
        continue;
      }
    }
    ++index;
  }
  if (held()) return Progress::open;
  while (!awaited_.empty()) {
    Awaited& each = awaited_.back();
    if (!each.event) return Progress::open;
    if (!each.event->seen_done()) {
      const abi::CUresult code = relaxed.relax();
      if (driver_is_gone(code)) {
        each.event->set_done();
        awaited_.pop_back();
        continue;
      }
      if (code == abi::CUDA_ERROR_NOT_PERMITTED) return Progress::blocked;
      if (code != abi::CUDA_SUCCESS) return Progress::open;
    }
    const WorkAnswer answer = query(*each.event);
    if (answer == WorkAnswer::blocked) return Progress::blocked;
    if (answer == WorkAnswer::open) return Progress::open;
    if (answer == WorkAnswer::lost) {
      if (each.stream) each.event.reset();  // to be recorded anew
      return Progress::open;
    }
    awaited_.pop_back();
  }
  return Progress::done;
}

Result<void> PendingWork::State::take_failure() {
  if (!failure_) return {};
  failed_.reset();
  return *std::exchange(failure_, std::nullopt);
}

void PendingWork::State::report() noexcept {
  if (failure_) failed_->report_once(*failure_);
  failure_.reset();
  failed_.reset();
}

bool PendingWork::State::held() const noexcept {
  return std::any_of(captures_.begin(), captures_.end(), [](const auto& capture) { return !capture->gone.load(); });
}

std::string PendingWork::State::describe() const {
  std::string text =
      fmt::format("{} not done", awaited_.size() == 1 ? std::string("1 stream or event is")
                                                      : fmt::format("{} streams or events are", awaited_.size()));
  std::string held;
  for (const auto& capture : captures_)
    if (!capture->gone.load()) held += fmt::format("{}{}", held.empty() ? "" : ", ", capture->id.value);
  if (!held.empty()) text += fmt::format(", held for captures: {}", held);
  if (last_entry_) text += fmt::format("; {} answered {}", driver::name(*last_entry_), driver::result_name(last_code_));
  return text;
}

void PendingWork::State::merge(State& other) {
  awaited_.reserve(awaited_.size() + other.awaited_.size());
  captures_.reserve(captures_.size() + other.captures_.size());
  awaited_.insert(awaited_.end(), std::move_iterator(other.awaited_.begin()), std::move_iterator(other.awaited_.end()));
  captures_.insert(captures_.end(), other.captures_.begin(), other.captures_.end());
  other.awaited_.clear();
  other.captures_.clear();
}

PendingWork::PendingWork() noexcept = default;
PendingWork::PendingWork(PendingWork&& other) noexcept = default;
PendingWork& PendingWork::operator=(PendingWork&& other) noexcept = default;
PendingWork::~PendingWork() = default;
PendingWork::PendingWork(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

bool PendingWork::is_done() {
  if (!state_) return true;
  {
    RelaxedOnDemand relaxed(*state_->pool()->interface());
    if (state_->ask(relaxed) != Progress::done) return false;
  }
  state_->report();
  return true;
}

namespace {

Failure not_done(ErrorKind kind, std::string arguments, std::string rule, std::string way_out,
                 std::string_view rule_id = {}) {
  Failure failure =
      invalid_use("PendingWork::wait_until", std::move(arguments), std::move(rule), std::move(way_out), rule_id);
  failure.kind = kind;
  return failure;
}

}  // namespace

Result<void> PendingWork::wait_until(std::chrono::steady_clock::time_point deadline) {
  if (!state_) return {};
  Backoff backoff;
  for (;;) {
    Progress progress = Progress::open;
    {
      RelaxedOnDemand relaxed(*state_->pool()->interface());
      progress = state_->ask(relaxed);
    }
    if (progress == Progress::done) return state_->take_failure();
    if (progress == Progress::blocked)
      return not_done(ErrorKind::not_permitted, state_->describe(),
                      "A host function must not wait for the device, which waits for it", "Wait in another thread",
                      "NOT-IN-HOST-FUNCTION");
    if (state_->held())
      return not_done(ErrorKind::invalid_use, state_->describe(),
                      "A graph that was captured may run at any time, so waiting does not end its use of the memory",
                      "Destroy the graph and what was instantiated from it, then call graph_gone",
                      "UNMAP-NOT-WHILE-IN-USE");
    if (Backoff::Clock::now() >= deadline)
      return not_done(ErrorKind::timed_out, state_->describe(),
                      "The device had not done the work when the deadline came",
                      "Wait longer, or find what the streams wait for");
    backoff.pause(deadline);
  }
}

Result<void> PendingWork::wait_for(std::chrono::nanoseconds duration) {
  if (!state_) return {};
  return wait_until(deadline_after(duration));
}

void PendingWork::merge(PendingWork&& other) {
  if (!other.state_ || other.state_ == state_) return;
  if (!state_) {
    state_ = std::move(other.state_);
    return;
  }
  if (state_->pool() != other.state_->pool())
    raise(invalid_use("PendingWork::merge", "", "Work of two drivers cannot be waited for together",
                      "Keep one PendingWork for each driver"));
  state_->merge(*other.state_);
  other.state_.reset();
}

bool PendingWork::graph_gone(CaptureId capture) noexcept {
  bool was_held = false;
  if (state_)
    for (const auto& each : state_->captures())
      if (each->id == capture) was_held = !each->gone.exchange(true) || was_held;
  return was_held;
}

std::vector<CaptureId> PendingWork::held_captures() const {
  std::vector<CaptureId> held;
  if (state_)
    for (const auto& each : state_->captures())
      if (!each->gone.load()) held.push_back(each->id);
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  return held;
}

}  // namespace cuvmm
