// Contexts, streams, submission and waiting.
#include "emulator/execution/engine.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace cuvmm::emulator::execution {

namespace {

// Groups of contexts that fail alone; the owner's own group numbers are small.
constexpr std::uint64_t lone_group = std::uint64_t{1} << 63;

bool unfinished(const StreamPointer& stream) {
  return stream->last && !stream->last->done;
}

}  // namespace

// A wait within an operation may be for that very operation.
Answer Engine::forbid_waiting_inside() {
  if (inside_host_function()) {
    return {abi::CUDA_ERROR_NOT_PERMITTED, Rule::host_function, "called from a host function"};
  }
  if (inside_kernel()) {
    return {abi::CUDA_ERROR_NOT_PERMITTED, Rule::host_kernel, "called from the function of a host kernel"};
  }
  return {};
}

Engine::Engine(const Scheduling& scheduling) : scheduler_(scheduling) {}

Engine::~Engine() {
  Lock lock(scheduler_);
  while (!captures_.empty()) {
    finish_capture(lock, *std::shared_ptr<Capture>(captures_.back()));
  }
}

Answer Engine::usable(const Lock&, const ContextPointer& context) const {
  if (!context) {
    return {abi::CUDA_ERROR_INVALID_CONTEXT, Rule::context_live, "there is no such context"};
  }
  if (context->destroyed) {
    return {abi::CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::context_live, "the context was destroyed"};
  }
  if (context->fault) {
    return {context->fault->code, Rule::context_healthy, "it failed at " + context->fault->why};
  }
  return {};
}

Answer Engine::usable(const Lock& lock, const StreamPointer& stream) const {
  if (!stream) {
    return {abi::CUDA_ERROR_INVALID_HANDLE, Rule::stream_live, "there is no such stream"};
  }
  return usable(lock, stream->context);
}

Answer Engine::usable(const Lock& lock, const EventPointer& event) const {
  if (!event) {
    return {abi::CUDA_ERROR_INVALID_HANDLE, Rule::event_live, "there is no such event"};
  }
  return usable(lock, event->context);
}

// As usable(), for the calls that wait.
template <typename Pointer>
Answer Engine::usable_for_waiting(Lock& lock, const Pointer& object) {
  Answer answer = usable(lock, object);
  if constexpr (std::is_same_v<Pointer, ContextPointer>) {
    if (object && object->fault) {
      scheduler_.await_quiet(lock, *object);
    }
  } else if (object && object->context->fault) {
    scheduler_.await_quiet(lock, *object->context);
  }
  return answer;
}

template Answer Engine::usable_for_waiting(Lock& lock, const EventPointer& object);

ContextPointer Engine::create_context() {
  const std::uint64_t id = next_id_++;
  return begin_context(std::make_shared<Context>(id, FaultGroup{lone_group | id}));
}

ContextPointer Engine::create_context(FaultGroup group) {
  return begin_context(std::make_shared<Context>(next_id_++, group));
}

ContextPointer Engine::begin_context(ContextPointer context) {
  Lock lock(scheduler_);
  auto legacy = make_stream(lock, context, StreamRole::legacy, abi::CU_STREAM_DEFAULT, 0);
  scheduler_.add_context(lock, context);
  context->legacy = std::move(legacy);  // last: from here on the two keep each other
  return context;
}

Answer Engine::destroy_context(const ContextPointer& context) {
  if (Answer answer = forbid_waiting_inside(); !answer.ok()) {
    return answer;
  }
  Lock lock(scheduler_);
  if (!context || context->destroyed) {
    return {abi::CUDA_ERROR_INVALID_CONTEXT, Rule::context_live,
            "there is no such context, or it has been destroyed already"};
  }
  end_captures_of(lock, *context);
  scheduler_.destroy_context(lock, context);
  return {};
}

Answer Engine::check_context(const ContextPointer& context) {
  Lock lock(scheduler_);
  return usable(lock, context);
}

Answer Engine::check_group(FaultGroup group) {
  Lock lock(scheduler_);
  const auto fault = scheduler_.fault_of(lock, group);
  if (!fault) {
    return {};
  }
  return {fault->code, Rule::context_healthy, "the device failed in this process at " + fault->why};
}

std::optional<Fault> Engine::fault(const ContextPointer& context) {
  Lock lock(scheduler_);
  return context->fault;
}

void Engine::fail_context(const ContextPointer& context, const Fault& fault) {
  Lock lock(scheduler_);
  scheduler_.fail_contexts(lock, context->fault_group, fault);
}

StreamPointer Engine::make_stream(Lock&, const ContextPointer& context, StreamRole role, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>(next_id_++, context, role, flags, priority);
  if (role != StreamRole::legacy) {
    context->streams.push_back(stream);
  }
  return stream;
}

Answer Engine::create_stream(const ContextPointer& context, unsigned flags, int priority, StreamPointer& stream) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, context); !answer.ok()) {
    return answer;
  }
  stream = make_stream(lock, context, StreamRole::created, flags, priority);
  return {};
}

StreamPointer Engine::legacy_stream(const ContextPointer& context) {
  Lock lock(scheduler_);
  return context ? context->legacy : nullptr;
}

StreamPointer Engine::per_thread_stream(const ContextPointer& context) {
  Lock lock(scheduler_);
  if (!context || context->destroyed) {
    return nullptr;
  }
  const auto known = context->per_thread.find(this_thread_number());
  if (known != context->per_thread.end()) {
    return known->second.stream;
  }
  forget_ended_threads(lock, *context);
  const auto own = context->per_thread.try_emplace(this_thread_number()).first;
  try {
    own->second.thread = this_thread_life();
    own->second.stream = make_stream(lock, context, StreamRole::per_thread, abi::CU_STREAM_DEFAULT, 0);
  } catch (...) {
    context->per_thread.erase(own);
    throw;
  }
  return own->second.stream;
}

// What they submitted still runs. A capture that begins in such a stream stays: nobody may have ended it.
void Engine::forget_ended_threads(Lock& lock, Context& context) {
  std::erase_if(context.per_thread, [&](const auto& entry) {
    const auto& [stream, thread] = entry.second;
    if (!thread.expired() || stream->capture) {
      return false;
    }
    stream->destroyed = true;
    scheduler_.forget_if_drained(lock, *stream);
    return true;
  });
}

std::size_t Engine::stream_count(const ContextPointer& context) {
  Lock lock(scheduler_);
  return context->streams.size();
}

Answer Engine::destroy_stream(const StreamPointer& stream) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (stream->role != StreamRole::created) {
    return {abi::CUDA_ERROR_INVALID_HANDLE, Rule::default_streams_stay, "the default streams cannot be destroyed"};
  }
  if (const auto capture = stream->capture) {
    if (capture->streams.front() == stream) {
      finish_capture(lock, *capture);
    } else {
      std::erase(capture->streams, stream);
      stream->capture.reset();
    }
  }
  stream->destroyed = true;
  scheduler_.forget_if_drained(lock, *stream);
  return {};
}

Answer Engine::stream_flags(const StreamPointer& stream, unsigned& flags) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_observing_capture(lock, stream, "asking for the flags of"); !answer.ok()) {
    return answer;
  }
  flags = stream->flags;
  return {};
}

Answer Engine::submit(const StreamPointer& stream, Operation operation) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  return accept(lock, stream, std::move(operation));
}

Answer Engine::accept(Lock& lock, const StreamPointer& stream, Operation&& operation) {
  if (stream->capture) {
    return capture_operation(lock, *stream, std::move(operation));
  }
  if (Answer answer = forbid_implicit_use(lock, stream); !answer.ok()) {
    return answer;
  }
  enqueue(lock, stream, std::move(operation), {});
  return {};
}

Answer Engine::submit_and_wait(const StreamPointer& stream, Operation operation) {
  if (Answer answer = forbid_waiting_inside(); !answer.ok()) {
    return answer;
  }
  Lock lock(scheduler_);
  if (Answer answer = usable_for_waiting(lock, stream); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_observing_capture(lock, stream, "waiting for work in"); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_implicit_use(lock, stream); !answer.ok()) {
    return answer;
  }
  std::vector<Awaited> awaited(1);  // what needs memory comes first: an operation that was accepted is waited for
  awaited.front().stream = stream;
  awaited.front().completion = enqueue(lock, stream, std::move(operation), {}, true);
  return wait_for(lock, awaited, stream->context);
}

// The legacy default stream's rule: its work waits for all work submitted before to the blocking streams of the
// context, and theirs waits for its.
std::shared_ptr<Completion> Engine::enqueue(Lock& lock, const StreamPointer& stream, Operation operation,
                                            Completions waits_for, bool wait_here, Completions also_completes) {
  const Context& context = *stream->context;
  if (stream->blocking() && unfinished(context.legacy)) {
    waits_for.push_back(context.legacy->last);
  }
  if (stream->legacy()) {
    for (const StreamPointer& other : context.streams) {
      if (other->blocking() && unfinished(other)) {
        waits_for.push_back(other->last);
      }
    }
  }
  PendingOperation pending{std::move(operation), std::move(waits_for), std::move(also_completes)};
  return scheduler_.enqueue(lock, stream, std::move(pending), wait_here);
}

std::vector<Engine::Awaited> Engine::unfinished_work(const Lock&, const StreamPointer& stream) const {
  std::vector<Awaited> work;
  if (stream->legacy()) {
    for (const StreamPointer& other : stream->context->streams) {
      if (other->blocking() && unfinished(other)) {
        work.push_back({other->last, other});
      }
    }
  }
  if (unfinished(stream)) {
    work.push_back({stream->last, stream});
  }
  return work;
}

Answer Engine::wait_for(Lock& lock, const std::vector<Awaited>& awaited, const ContextPointer& context) {
  for (const Awaited& one : awaited) {
    const abi::CUresult result = scheduler_.wait(lock, *one.completion, *context, one.stream);
    if (result == abi::CUDA_ERROR_LAUNCH_TIMEOUT) {
      return Answer::of_no_rule(result);
    }
    if (result != abi::CUDA_SUCCESS) {
      break;
    }
  }
  return usable(lock, context);
}

void Engine::step_for_query(Lock& lock) {
  scheduler_.help_out(lock);
  if (!scheduler_.stepped()) {
    return;
  }
  for (std::size_t count = 0; count < scheduler_.scheduling().steps_per_query; ++count) {
    if (scheduler_.step(lock) == Step::idle) {
      return;
    }
  }
}

Answer Engine::query_stream(const StreamPointer& stream) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_observing_capture(lock, stream, "querying"); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_implicit_use(lock, stream); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_unsafe_call(lock, "querying a stream"); !answer.ok()) {
    return answer;
  }
  step_for_query(lock);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (!unfinished_work(lock, stream).empty()) {
    return Answer::of_no_rule(abi::CUDA_ERROR_NOT_READY);
  }
  return {};
}

Answer Engine::synchronize_stream(const StreamPointer& stream) {
  if (Answer answer = forbid_waiting_inside(); !answer.ok()) {
    return answer;
  }
  Lock lock(scheduler_);
  if (Answer answer = usable_for_waiting(lock, stream); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_observing_capture(lock, stream, "synchronizing"); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_implicit_use(lock, stream); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_unsafe_call(lock, "synchronizing a stream"); !answer.ok()) {
    return answer;
  }
  return wait_for(lock, unfinished_work(lock, stream), stream->context);
}

Answer Engine::drain_context(const ContextPointer& context) {
  if (Answer answer = forbid_waiting_inside(); !answer.ok()) {
    return answer;
  }
  Lock lock(scheduler_);
  if (Answer answer = usable_for_waiting(lock, context); !answer.ok()) {
    return answer;
  }
  return wait_for(lock, unfinished_work(lock, context), context);
}

Answer Engine::synchronize_context(const ContextPointer& context) {
  if (Answer answer = forbid_waiting_inside(); !answer.ok()) {
    return answer;
  }
  Lock lock(scheduler_);
  if (Answer answer = usable_for_waiting(lock, context); !answer.ok()) {
    return answer;
  }
  for (const StreamPointer& stream : context->streams) {
    if (Answer answer = forbid_observing_capture(lock, stream, "synchronizing the context of"); !answer.ok()) {
      return answer;
    }
  }
  if (Answer answer = forbid_unsafe_call(lock, "synchronizing a context"); !answer.ok()) {
    return answer;
  }
  return wait_for(lock, unfinished_work(lock, context), context);
}

std::vector<Engine::Awaited> Engine::unfinished_work(const Lock&, const ContextPointer& context) {
  std::vector<Awaited> work;
  for (const StreamPointer& stream : context->streams) {
    if (unfinished(stream)) {
      work.push_back({stream->last, stream});
    }
  }
  if (unfinished(context->legacy)) {
    work.push_back({context->legacy->last, context->legacy});
  }
  return work;
}

std::optional<UnfinishedOperation> Engine::first_unfinished_touching(abi::CUdeviceptr address, std::size_t bytes) {
  if (scheduler_.nothing_unfinished()) {
    return std::nullopt;
  }
  const auto search = [&](const StreamPointer& stream) -> std::optional<UnfinishedOperation> {
    for (const PendingOperation& pending : stream->queue) {
      for (const TouchedRange& range : pending.operation.touches) {
        // Differences, since sums of addresses and sizes may wrap around.
        const bool overlap =
            range.address <= address ? address - range.address < range.bytes : range.address - address < bytes;
        if (overlap && range.bytes != 0 && bytes != 0) {
          return UnfinishedOperation{stream->context->id, stream->id, pending.operation.kind,
                                     pending.operation.description, range};
        }
      }
    }
    return std::nullopt;
  };
  Lock lock(scheduler_);
  for (const ContextPointer& context : scheduler_.contexts(lock)) {
    if (auto found = search(context->legacy)) {
      return found;
    }
    for (const StreamPointer& stream : context->streams) {
      if (auto found = search(stream)) {
        return found;
      }
    }
  }
  return std::nullopt;
}

Step Engine::step() {
  Lock lock(scheduler_);
  return scheduler_.step(lock);
}

void Engine::run_until_idle() {
  Lock lock(scheduler_);
  scheduler_.run_until_idle(lock);
}

std::vector<TraceEntry> Engine::take_trace() {
  Lock lock(scheduler_);
  return scheduler_.take_trace(lock);
}

std::size_t Engine::worker_count() {
  Lock lock(scheduler_);
  return scheduler_.worker_count(lock);
}

}  // namespace cuvmm::emulator::execution
