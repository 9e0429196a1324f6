#include "emulator/execution/scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <stdexcept>
#include <utility>

#include "emulator/execution/capture.hpp"
#include "emulator/execution/put_off_end.hpp"
#include "emulator/thread_storage.hpp"

namespace cuvmm::emulator::execution {

namespace {

// How long an operation that answered `again` rests: not at all at first, since most spins are short, then longer, so
// that a long spin costs no processor.
std::chrono::microseconds rest_after(std::uint64_t fruitless_tries) {
  if (fruitless_tries < 8) {
    return std::chrono::microseconds(0);
  }
  return std::chrono::microseconds(1 << std::min<std::uint64_t>(fruitless_tries - 8, 10));
}

// How often an operation is tried that cannot begin for want of memory; with the rests between, a quarter of a second.
constexpr unsigned most_tries_without_memory = 250;

Fault as_far_as_memory_goes(const Fault& fault) noexcept {
  try {
    return fault;
  } catch (const std::bad_alloc&) {
    return {fault.code, {}};
  }
}

// After a failure or the end of its context an operation is dropped: finished without being run. Host functions in
// other streams of a failed context still run, as they do with the CUDA driver.
bool dropped(const Stream& stream, const PendingOperation& pending) {
  const Context& context = *stream.context;
  if (context.destroyed) {
    return true;
  }
  return context.fault && (stream.faulted || pending.operation.kind != OperationKind::host_function);
}

}  // namespace

std::uint64_t this_thread_number() noexcept {
  static std::atomic<std::uint64_t> next{1};
  thread_local const std::uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

std::weak_ptr<const void> this_thread_life() {
  struct Life {
    std::shared_ptr<const int> token = std::make_shared<const int>(0);
  };
  return of_this_thread<Life>().token;
}

Scheduler::Scheduler(const Scheduling& scheduling) : scheduling_(scheduling), random_state_(scheduling.seed) {}

Scheduler::~Scheduler() {
  Lock lock(*this);
  while (!contexts_.empty()) {
    destroy_context(lock, std::shared_ptr<Context>(contexts_.back()));
  }
  stopping_ = true;
  work_.notify_all();
  lock.without([this] {
    while (true) {
      std::list<std::thread> threads;
      {
        const std::lock_guard<std::mutex> guard(mutex_);
        threads.splice(threads.end(), workers_);
        threads.splice(threads.end(), ended_workers_);
      }
      if (threads.empty()) {
        return;
      }
      for (std::thread& thread : threads) {
        if (thread.get_id() == std::this_thread::get_id()) {
          thread.detach();  // a worker that ends what it worked for (put_off_end), as its last act
        } else {
          thread.join();
        }
      }
    }
  });
}

void Scheduler::Lock::keep(std::shared_ptr<Capture> capture) noexcept {
  capture->ended_graph = std::exchange(capture->graph, nullptr);
  capture->kept_before = std::move(kept_);
  kept_ = std::move(capture);
}

void Scheduler::Lock::let_go() noexcept {
  while (kept_) {
    const std::shared_ptr<Capture> last = std::move(kept_);
    kept_ = std::move(last->kept_before);
    last->ended_graph.reset();
  }
}

void Scheduler::add_context(Lock&, std::shared_ptr<Context> context) {
  group_faults_.try_emplace(context->fault_group.value);
  contexts_.push_back(std::move(context));
}

void Scheduler::destroy_context(Lock& lock, const std::shared_ptr<Context>& context) {
  context->destroyed = true;
  drop_pending(lock, *context);
  while (context->running != 0) {
    wait_for_progress(lock, nullptr);
  }
  context->streams.clear();
  context->per_thread.clear();
  context->legacy.reset();
  std::erase(contexts_, context);
  const std::uint64_t group = context->fault_group.value;
  const bool last = std::none_of(contexts_.begin(), contexts_.end(),
                                 [&](const auto& other) { return other->fault_group.value == group; });
  if (const auto entry = group_faults_.find(group); last && entry != group_faults_.end() && !entry->second) {
    group_faults_.erase(entry);
  }
  progress_.notify_all();
}

std::shared_ptr<Completion> Scheduler::enqueue(Lock& lock, const std::shared_ptr<Stream>& stream,
                                               PendingOperation pending, bool wait_here) {
  auto completion = std::make_shared<Completion>();
  pending.completion = completion;
  if (!pending.waits_for.empty()) {
    pending.ticket.emplace_back();
  }
  stream->queue.push_back(std::move(pending));  // the last that may fail
  stream->last = completion;
  unfinished_.fetch_add(1, std::memory_order_release);
  if (stream->queue.size() == 1) {
    stream->helpers += wait_here ? 1 : 0;  // make_ready() then leaves the stream to the caller
    advance(lock, stream);
    stream->helpers -= wait_here ? 1 : 0;
  }
  return completion;
}

// Whether the stream's oldest operation depends on nothing unfinished. If it does, the stream is called again when
// that is finished.
bool Scheduler::may_go(const std::shared_ptr<Stream>& stream) {
  auto& [operation, waits_for, also_completes, completion, ticket, fruitless, without_memory] = stream->queue.front();
  while (!waits_for.empty()) {
    if (!waits_for.back()->done) {
      if (!ticket.empty()) {  // else it is in that list already
        ticket.front() = stream;
        auto& dependents = waits_for.back()->dependents;
        dependents.splice(dependents.end(), ticket);
      }
      return false;
    }
    waits_for.pop_back();
  }
  return true;
}

// Brings streams forward as far as they go without running anything: marks and dropped operations are finished, an
// operation to run makes its stream ready. What that releases is brought forward too.
void Scheduler::advance(Lock& lock, const std::shared_ptr<Stream>& stream) {
  StreamList released;
  bring_forward(lock, stream, released);
  advance(lock, std::move(released));
}

void Scheduler::advance(Lock& lock, StreamList streams) {
  while (!streams.empty()) {
    StreamList ticket;
    ticket.splice(ticket.end(), streams, std::prev(streams.end()));
    const std::shared_ptr<Stream> stream = std::move(ticket.front());
    if (!stream->queue.empty() && stream->queue.front().ticket.empty()) {
      stream->queue.front().ticket = std::move(ticket);  // it may have more to wait for
    }
    bring_forward(lock, stream, streams);
  }
}

void Scheduler::bring_forward(Lock& lock, const std::shared_ptr<Stream>& stream, StreamList& released) {
  while (stream->phase == Stream::Phase::waiting && !stream->queue.empty()) {
    const bool drop = dropped(*stream, stream->queue.front());
    if (!drop && !may_go(stream)) {
      break;
    }
    if (!drop && stream->queue.front().operation.run) {
      make_ready(stream);
      break;
    }
    finish_oldest(lock, *stream, released);
  }
  forget_if_drained(lock, *stream);
}

void Scheduler::finish_oldest(Lock& lock, Stream& stream, StreamList& released) {
  PendingOperation& oldest = stream.queue.front();
  for (const auto& completion : oldest.also_completes) {
    mark_done(*completion, released);
  }
  mark_done(*oldest.completion, released);
  lock.finished_.splice(lock.finished_.end(), stream.queue, stream.queue.begin());
  unfinished_.fetch_sub(1, std::memory_order_release);
  if (waiting_threads_ != 0) {
    progress_.notify_all();
  }
}

void Scheduler::mark_done(Completion& completion, StreamList& released) {
  if (completion.done) {
    return;
  }
  completion.done = true;
  completion.when = timestamp();
  released.splice(released.end(), completion.dependents);
}

void Scheduler::complete(Lock& lock, Completion& completion) {
  StreamList released;
  mark_done(completion, released);
  progress_.notify_all();
  advance(lock, std::move(released));
}

void Scheduler::list_as_ready(const std::shared_ptr<Stream>& stream) {
  stream->phase = Stream::Phase::ready;
  stream->ready_place = next_place_++;
  stream->ready_node.key() = stream->ready_place;
  stream->ready_node.mapped() = stream;
  ready_.insert(std::move(stream->ready_node));
}

void Scheduler::make_ready(const std::shared_ptr<Stream>& stream) {
  list_as_ready(stream);
  if (stream->helpers != 0) {
    progress_.notify_all();
  } else if (!stepped()) {
    call_worker();
  }
}

// Puts a stream aside whose oldest operation answered `again`.
void Scheduler::rest(const std::shared_ptr<Stream>& stream) {
  const unsigned tries = ++stream->queue.front().fruitless_tries;
  if (stepped()) {
    make_ready(stream);
    return;
  }
  stream->phase = Stream::Phase::retrying;
  stream->retry_at = RetryClock::now() + rest_after(tries);
  stream->resting_node.key() = stream->retry_at;
  stream->resting_node.mapped() = stream;
  retrying_.insert(std::move(stream->resting_node));
}

void Scheduler::unlist(const std::shared_ptr<Stream>& stream) {
  if (stream->phase == Stream::Phase::ready) {
    stream->ready_node = ready_.extract(stream->ready_place);
    stream->ready_node.mapped().reset();
    stream->phase = Stream::Phase::waiting;
  } else if (stream->phase == Stream::Phase::retrying) {
    const auto [begin, end] = retrying_.equal_range(stream->retry_at);
    stream->resting_node =
        retrying_.extract(std::find_if(begin, end, [&](const auto& entry) { return entry.second == stream; }));
    stream->resting_node.mapped().reset();
    stream->phase = Stream::Phase::waiting;
  }
}

// Tries the oldest operation of a stream that is ready or retrying.
Step Scheduler::execute(Lock& lock, const std::shared_ptr<Stream>& stream) {
  unlist(stream);
  stream->phase = Stream::Phase::running;
  if (!stepped() && (!ready_.empty() || !retrying_.empty())) {
    call_worker();  // this thread may be away for long: another must see to the rest, and know when a rest is over
  }
  PendingOperation& oldest = stream->queue.front();  // stays where it is: only this thread may pop it
  const std::size_t on_gpu = oldest.operation.kind == OperationKind::host_function ? 0 : 1;
  ++stream->context->running;
  stream->context->running_on_gpu += on_gpu;
  Outcome outcome;
  lock.without([&] {
    const RunningHere here(*this);
    outcome = attempt(oldest.operation.kind, oldest.operation.run);
  });
  --stream->context->running;
  stream->context->running_on_gpu -= on_gpu;
  stream->phase = Stream::Phase::waiting;

  if (outcome.state == Outcome::State::short_of_memory && ++oldest.tries_without_memory == most_tries_without_memory) {
    outcome.state = Outcome::State::fault;
    outcome.code = abi::CUDA_ERROR_LAUNCH_FAILED;
  }
  const bool advanced = outcome.state == Outcome::State::advanced;
  if (advanced) {
    oldest.fruitless_tries = 0;
  }
  if (outcome.unfinished() && !dropped(*stream, oldest)) {
    rest(stream);
    progress_.notify_all();
    return advanced ? Step::advanced : Step::fruitless;
  }
  if (outcome.state == Outcome::State::fault) {
    fail(lock, *stream, oldest, outcome);
  }
  if (stepped() && scheduling_.keep_trace && !outcome.unfinished()) {
    trace_.push_back({stream->id, oldest.operation.kind, oldest.operation.description});
  }
  StreamList released;
  finish_oldest(lock, *stream, released);
  progress_.notify_all();
  advance(lock, std::move(released));
  advance(lock, stream);
  return Step::finished;
}

// Without words where there is no memory for them.
void Scheduler::fail(Lock& lock, Stream& stream, const PendingOperation& failed, const Outcome& outcome) {
  Fault fault{outcome.code, {}};
  try {
    const std::string& what = failed.operation.description;
    fault.why = fmt::format("{}: {}", what.empty() ? name_of(failed.operation.kind) : what, outcome.why);
  } catch (const std::bad_alloc&) {
  }
  stream.faulted = true;
  stream.phase = Stream::Phase::running;  // the failed operation is the oldest one still; the caller finishes it
  fail_contexts(lock, stream.context->fault_group, fault);
  stream.phase = Stream::Phase::waiting;
}

std::optional<Fault> Scheduler::fault_of(const Lock&, FaultGroup group) const {
  const auto found = group_faults_.find(group.value);
  return found == group_faults_.end() ? std::nullopt : found->second;
}

void Scheduler::fail_contexts(Lock& lock, FaultGroup group, const Fault& fault) {
  if (const auto entry = group_faults_.find(group.value); entry != group_faults_.end() && !entry->second) {
    entry->second = as_far_as_memory_goes(fault);
  }
  for (const auto& context : contexts_) {  // none of which goes meanwhile
    if (context->fault_group.value == group.value && !context->fault) {
      context->fault = as_far_as_memory_goes(fault);
      drop_pending(lock, *context);
    }
  }
  progress_.notify_all();
}

// Finishes what dropped() now holds for.
void Scheduler::drop_pending(Lock& lock, Context& context) {
  // Streams that were destroyed go when they are drained, wherever they stand: begin anew until none has gone.
  for (std::size_t before = context.streams.size() + 1; before != context.streams.size();) {
    before = context.streams.size();
    std::size_t index = 0;
    while (index < context.streams.size()) sort_out(lock, std::shared_ptr<Stream>(context.streams[index++]));
  }
  if (const auto legacy = context.legacy) {
    sort_out(lock, legacy);
  }
}

void Scheduler::sort_out(Lock& lock, const std::shared_ptr<Stream>& stream) {
  unlist(stream);
  advance(lock, stream);
}

void Scheduler::forget_if_drained(Lock&, const Stream& stream) {
  if (stream.destroyed && stream.queue.empty()) {
    std::erase_if(stream.context->streams, [&](const auto& other) { return other.get() == &stream; });
  }
}

// Timestamps never repeat, so that a later event is never as old as an earlier one. In stepped mode they count
// microseconds of operations, which makes elapsed times repeatable.
std::chrono::nanoseconds Scheduler::timestamp() {
  if (stepped()) {
    return last_timestamp_ += std::chrono::microseconds(1);
  }
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(RetryClock::now().time_since_epoch());
  return last_timestamp_ = std::max(now, last_timestamp_ + std::chrono::nanoseconds(1));
}

// SplitMix64: the same numbers everywhere, which the standard's distributions do not promise.
std::uint64_t Scheduler::random_below(std::uint64_t bound) {
  std::uint64_t z = (random_state_ += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return (z ^ (z >> 31)) % bound;
}

Step Scheduler::step(Lock& lock) {
  if (!stepped()) {
    throw std::logic_error("single steps need the stepped scheduler; the threaded one runs operations by itself");
  }
  if (ready_.empty()) {
    return Step::idle;
  }
  const auto chosen = std::next(ready_.begin(), static_cast<std::ptrdiff_t>(random_below(ready_.size())));
  return execute(lock, std::shared_ptr<Stream>(chosen->second));
}

void Scheduler::run_until_idle(Lock& lock) {
  std::size_t fruitless = 0;
  // Operations are chosen at random: sixteen rounds leave none untried, to all intents.
  while (fruitless <= 16 * ready_.size()) {
    const Step outcome = step(lock);
    if (outcome == Step::idle) {
      return;
    }
    fruitless = outcome == Step::finished || outcome == Step::advanced ? 0 : fruitless + 1;
  }
}

std::vector<TraceEntry> Scheduler::take_trace(Lock&) {
  return std::exchange(trace_, {});
}

// Wakes up in time for a rest to end that the caller is to see to: its own stream's, any where no worker does.
void Scheduler::wait_for_progress(Lock& lock, const Stream* own) {
  std::optional<RetryClock::time_point> until;  // a copy: others may change it meanwhile
  if (own != nullptr && own->phase == Stream::Phase::retrying) {
    until = own->retry_at;
  }
  if (!stepped() && left_alone() && !retrying_.empty()) {
    until = std::min(until.value_or(RetryClock::time_point::max()), retrying_.begin()->first);
  }
  ++waiting_threads_;
  if (until) {
    progress_.wait_until(lock.held_, *until);
  } else {
    progress_.wait(lock.held_);
  }
  --waiting_threads_;
}

void Scheduler::await_quiet(Lock& lock, const Context& context) {
  while (context.running_on_gpu != 0) {
    wait_for_progress(lock, nullptr);
  }
}

// The stream whose operation a waiting thread may run now, or null. Where no worker can be had, any will do.
std::shared_ptr<Stream> Scheduler::claimable(const std::shared_ptr<Stream>& stream) const {
  const RetryClock::time_point now = RetryClock::now();
  if (stream && (stream->phase == Stream::Phase::ready ||
                 (stream->phase == Stream::Phase::retrying && now >= stream->retry_at))) {
    return stream;
  }
  if (!left_alone()) {
    return nullptr;
  }
  if (!ready_.empty()) {
    return ready_.begin()->second;
  }
  return !retrying_.empty() && now >= retrying_.begin()->first ? retrying_.begin()->second : nullptr;
}

void Scheduler::help_out(Lock& lock) {
  if (stepped() || running_here(*this)) {
    return;
  }
  if (const auto stream = claimable(nullptr)) {
    execute(lock, stream);
  }
}

abi::CUresult Scheduler::wait(Lock& lock, const Completion& target, const Context& context,
                              const std::shared_ptr<Stream>& stream) {
  std::uint64_t fruitless = 0;
  if (stream) {
    ++stream->helpers;
  }
  abi::CUresult answer = abi::CUDA_SUCCESS;
  while (true) {
    if (context.destroyed || context.fault) {
      await_quiet(lock, context);
      answer = context.destroyed ? abi::CUDA_ERROR_CONTEXT_IS_DESTROYED : context.fault->code;
      break;
    }
    if (target.done) {
      break;
    }
    if (!stepped()) {
      if (const auto mine = claimable(stream)) {
        execute(lock, mine);
      } else if (!lock.finished_.empty()) {
        lock.without([] {});  // let finished operations be destroyed before a long rest
      } else {
        wait_for_progress(lock, stream.get());
      }
      continue;
    }
    const Step outcome = step(lock);
    fruitless = outcome == Step::finished || outcome == Step::advanced ? 0 : fruitless + 1;
    if (outcome == Step::idle) {
      wait_for_progress(lock, nullptr);
    } else if (outcome == Step::fruitless) {
      if (scheduling_.stall_limit != 0 && fruitless > scheduling_.stall_limit * ready_.size()) {
        answer = abi::CUDA_ERROR_LAUNCH_TIMEOUT;
        break;
      }
      lock.without([&] { std::this_thread::sleep_for(rest_after(fruitless / 8)); });
    }
  }
  if (stream && --stream->helpers == 0 && !stepped() &&
      (stream->phase == Stream::Phase::ready || stream->phase == Stream::Phase::retrying)) {
    call_worker();
  }
  return answer;
}

}  // namespace cuvmm::emulator::execution
