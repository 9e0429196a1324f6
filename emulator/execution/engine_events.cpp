// Events: records, waits, times.
#include <chrono>

#include "emulator/execution/engine.hpp"

namespace cuvmm::emulator::execution {

namespace {

Operation mark(OperationKind kind) {
  Operation operation;
  operation.kind = kind;
  return operation;
}

Answer refuse_external_outside_capture() {
  return {abi::CUDA_ERROR_ILLEGAL_STATE, Rule::event_external_in_capture, "the stream is not being captured"};
}

}  // namespace

Answer Engine::create_event(const ContextPointer& context, unsigned flags, EventPointer& event) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, context); !answer.ok()) {
    return answer;
  }
  event = std::make_shared<Event>(next_id_++, context, flags);
  return {};
}

Answer Engine::destroy_event(const EventPointer& event) {
  Lock lock(scheduler_);
  return usable(lock, event);
}

Answer Engine::record_event(const EventPointer& event, const StreamPointer& stream, unsigned flags) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, event); !answer.ok()) {
    return answer;
  }
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (event->context != stream->context) {
    return {abi::CUDA_ERROR_INVALID_HANDLE, Rule::event_same_context,
            "the event was made in another context than the stream"};
  }
  if ((flags & ~static_cast<unsigned>(abi::CU_EVENT_RECORD_EXTERNAL)) != 0) {
    return {abi::CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            "flags are CU_EVENT_RECORD_DEFAULT or CU_EVENT_RECORD_EXTERNAL"};
  }
  if (const auto capture = stream->capture) {
    if (flags != 0 || capture->invalidated) {
      return capture_external(lock, *stream, OperationKind::event_record, event);
    }
    event->captured_dependencies = stream->capture_dependencies;  // the only step that may fail
    event->record.reset();
    event->capture = capture;
    return {};
  }
  if (flags != 0) {
    return refuse_external_outside_capture();
  }
  if (Answer answer = forbid_implicit_use(lock, stream); !answer.ok()) {
    return answer;
  }
  event->record = enqueue(lock, stream, mark(OperationKind::event_record), {});
  event->capture.reset();
  event->captured_dependencies.clear();
  return {};
}

Answer Engine::wait_event(const StreamPointer& stream, const EventPointer& event, unsigned flags) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (!event) {
    return usable(lock, event);
  }
  if (Answer answer = check_capture_of(lock, stream); !answer.ok()) {
    return answer;
  }
  if ((flags & ~static_cast<unsigned>(abi::CU_EVENT_WAIT_EXTERNAL)) != 0) {
    return {abi::CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            "flags are CU_EVENT_WAIT_DEFAULT or CU_EVENT_WAIT_EXTERNAL"};
  }
  if (Answer answer = forbid_lost_event(lock, stream, event); !answer.ok()) {
    return answer;
  }
  if (flags != 0) {
    return stream->capture ? capture_external(lock, *stream, OperationKind::event_wait, event)
                           : refuse_external_outside_capture();
  }
  if (Answer answer = forbid_implicit_use(lock, stream); !answer.ok()) {
    return answer;
  }
  if (event->capture || stream->capture) {
    return capture_wait(lock, stream, event);
  }
  if (event->record && !event->record->done) {
    enqueue(lock, stream, mark(OperationKind::event_wait), {event->record});
  }
  return {};
}

Answer Engine::query_event(const EventPointer& event) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, event); !answer.ok()) {
    return answer;
  }
  if (Answer answer = captured_event_answer(lock, *event, true); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_unsafe_call(lock, "querying an event"); !answer.ok()) {
    return answer;
  }
  step_for_query(lock);
  if (Answer answer = usable(lock, event); !answer.ok()) {
    return answer;
  }
  if (event->record && !event->record->done) {
    return Answer::of_no_rule(abi::CUDA_ERROR_NOT_READY);
  }
  return {};
}

Answer Engine::synchronize_event(const EventPointer& event) {
  if (Answer answer = forbid_waiting_inside(); !answer.ok()) {
    return answer;
  }
  Lock lock(scheduler_);
  if (Answer answer = usable_for_waiting(lock, event); !answer.ok()) {
    return answer;
  }
  if (Answer answer = captured_event_answer(lock, *event, true); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_unsafe_call(lock, "synchronizing an event"); !answer.ok()) {
    return answer;
  }
  return event->record ? wait_for(lock, {{event->record, nullptr}}, event->context) : Answer{};
}

Answer Engine::elapsed_time(const EventPointer& start, const EventPointer& end, float& milliseconds) {
  Lock lock(scheduler_);
  for (const EventPointer& event : {start, end}) {
    if (Answer answer = usable(lock, event); !answer.ok()) {
      return answer;
    }
    if (Answer answer = captured_event_answer(lock, *event, false); !answer.ok()) {
      return answer;
    }
    if (!event->timed()) {
      return {abi::CUDA_ERROR_INVALID_HANDLE, Rule::event_times,
              "an event made with CU_EVENT_DISABLE_TIMING has no time"};
    }
    if (!event->record) {
      return {abi::CUDA_ERROR_INVALID_HANDLE, Rule::event_times, "an event has no time before it is recorded"};
    }
  }
  if (start->context != end->context) {
    return {abi::CUDA_ERROR_INVALID_HANDLE, Rule::event_times, "times of events of two contexts cannot be compared"};
  }
  if (!start->record->done || !end->record->done) {
    return Answer::of_no_rule(abi::CUDA_ERROR_NOT_READY);
  }
  const std::chrono::duration<float, std::milli> difference(end->record->when - start->record->when);
  milliseconds = difference.count();
  return {};
}

}  // namespace cuvmm::emulator::execution
