// Stream capture: how it begins, spreads, is spoiled and ends.
#include <algorithm>
#include <string>
#include <utility>

#include "emulator/execution/engine.hpp"

namespace cuvmm::emulator::execution {

namespace {

Answer answer_invalidated() {
  return {abi::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, Rule::capture_valid, "an earlier call invalidated it"};
}

bool contains(const std::vector<const GraphNode*>& nodes, const GraphNode* node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

}  // namespace

// The legacy stream waits for blocking streams, which a capture of one of them cannot express.
Answer Engine::forbid_implicit_use(Lock&, const StreamPointer& stream, bool invalidate) {
  if (!stream->legacy()) {
    return {};
  }
  Answer answer;
  for (const auto& capture : captures_) {
    const bool concerned = std::any_of(capture->streams.begin(), capture->streams.end(), [&](const auto& captured) {
      return captured->blocking() && captured->context == stream->context;
    });
    if (concerned) {
      capture->invalidated = capture->invalidated || invalidate;
      answer = {abi::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, Rule::capture_without_legacy,
                "a blocking stream of the legacy default stream's context is being captured"};
    }
  }
  return answer;
}

Answer Engine::forbid_observing_capture(Lock&, const StreamPointer& stream, const char* what) {
  if (!stream->capture) {
    return {};
  }
  stream->capture->invalidated = true;
  return {abi::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Rule::capture_not_observed,
          std::string(what) + " a stream that is being captured"};
}

// A call is unsafe to a capture of mode GLOBAL in any thread, and to one of mode THREAD_LOCAL in the thread that began
// it. The calling thread's own mode narrows this: THREAD_LOCAL to its own captures, RELAXED to none.
Answer Engine::forbid_unsafe_call(Lock& lock, const char* what) {
  const abi::CUstreamCaptureMode mode = thread_mode(lock);
  if (mode == abi::CU_STREAM_CAPTURE_MODE_RELAXED) {
    return {};
  }
  Answer answer;
  for (const auto& capture : captures_) {
    const bool own = capture->thread == this_thread_number() && capture->mode != abi::CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global =
        mode == abi::CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == abi::CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || global) {
      capture->invalidated = true;
      answer = {abi::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Rule::not_during_capture,
                std::string(what) + " while a stream is being captured"};
    }
  }
  return answer;
}

Answer Engine::check_unsafe_call() {
  if (capture_count_.load(std::memory_order_acquire) == 0) {
    return {};
  }
  Lock lock(scheduler_);
  return forbid_unsafe_call(lock, "this call");
}

Answer Engine::check_not_captured(const StreamPointer& stream, const char* what) {
  if (capture_count_.load(std::memory_order_acquire) == 0) {
    return {};
  }
  const Lock lock(scheduler_);
  if (!stream->capture) {
    return {};
  }
  stream->capture->invalidated = true;
  return {abi::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Rule::not_during_capture,
          std::string(what) + " cannot be captured"};
}

bool Engine::captures_free_of(const StreamPointer& stream, std::uint64_t id) {
  const Lock lock(scheduler_);
  if (!stream->capture || stream->capture->graph == nullptr) {
    return false;
  }
  const auto& nodes = stream->capture->graph->nodes;
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
    return node->operation.graph_memory.frees && node->operation.graph_memory.id == id;
  });
}

Answer Engine::check_capture_of(const StreamPointer& stream) {
  if (capture_count_.load(std::memory_order_acquire) == 0) {
    return {};
  }
  Lock lock(scheduler_);
  return check_capture_of(lock, stream);
}

Answer Engine::check_capture_of(Lock&, const StreamPointer& stream) {
  return stream->capture && stream->capture->invalidated ? answer_invalidated() : Answer{};
}

// A wait for such an event ends the capture of the stream that would wait.
Answer Engine::forbid_lost_event(Lock&, const StreamPointer& stream, const EventPointer& event) {
  if (!event->capture || (!event->capture->ended && !event->capture->invalidated)) {
    return {};
  }
  if (stream->capture) {
    stream->capture->invalidated = true;
  }
  return {abi::CUDA_ERROR_INVALID_VALUE, Rule::capture_events, "the capture has ended or was invalidated"};
}

Answer Engine::captured_event_answer(Lock&, Event& event, bool invalidate) {
  if (!event.capture) {
    return {};
  }
  if (event.capture->ended || event.capture->invalidated) {
    return {abi::CUDA_ERROR_INVALID_VALUE, Rule::capture_events, "the capture has ended or was invalidated"};
  }
  event.capture->invalidated = event.capture->invalidated || invalidate;
  return {abi::CUDA_ERROR_CAPTURED_EVENT, Rule::capture_events, "the capture is still open"};
}

Answer Engine::capture_operation(Lock&, Stream& stream, Operation&& operation) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) {
    return answer_invalidated();
  }
  std::vector<const GraphNode*> dependencies(1);  // what needs memory comes first
  dependencies.front() = capture.graph->add(std::move(operation), stream.capture_dependencies);
  stream.capture_dependencies = std::move(dependencies);
  return {};
}

// cuStreamWaitEvent where the stream, or the event's latest record, belongs to a capture.
Answer Engine::capture_wait(Lock&, const StreamPointer& stream, const EventPointer& event) {
  const auto capture = event->capture;
  if (!capture) {
    if (!event->record) {
      return {};
    }
    stream->capture->invalidated = true;
    return {abi::CUDA_ERROR_STREAM_CAPTURE_ISOLATION, Rule::capture_isolated,
            "the event was recorded outside of the capture"};
  }
  if (stream->capture && stream->capture != capture) {
    stream->capture->invalidated = true;
    capture->invalidated = true;
    return {abi::CUDA_ERROR_STREAM_CAPTURE_MERGE, Rule::capture_merge, "stream and event belong to two captures"};
  }
  if (stream->legacy()) {
    capture->invalidated = true;
    return {abi::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, Rule::capture_no_legacy_stream, "it waited for a captured event"};
  }
  std::vector<const GraphNode*> dependencies;  // what needs memory comes first
  if (stream->capture) {
    dependencies = stream->capture_dependencies;
  }
  for (const GraphNode* node : event->captured_dependencies) {
    if (!contains(dependencies, node)) {
      dependencies.push_back(node);
    }
  }
  if (!stream->capture) {
    capture->streams.push_back(stream);
    stream->capture = capture;
  }
  stream->capture_dependencies = std::move(dependencies);
  return {};
}

Answer Engine::begin_capture(const StreamPointer& stream, abi::CUstreamCaptureMode mode) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (mode < abi::CU_STREAM_CAPTURE_MODE_GLOBAL || mode > abi::CU_STREAM_CAPTURE_MODE_RELAXED) {
    return {abi::CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "the capture mode is GLOBAL, THREAD_LOCAL or RELAXED"};
  }
  if (Answer answer = forbid_implicit_use(lock, stream); !answer.ok()) {
    return answer;
  }
  if (stream->legacy()) {
    return {abi::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Rule::capture_no_legacy_stream, "its capture was begun"};
  }
  if (stream->capture) {
    return {abi::CUDA_ERROR_ILLEGAL_STATE, Rule::capture_begins_once, "the stream is being captured already"};
  }
  auto capture =
      std::make_shared<Capture>(next_capture_id_++, mode, this_thread_number(), std::make_shared<Graph>(next_id_++));
  capture->streams.push_back(stream);
  captures_.push_back(capture);  // the last that may fail
  stream->capture = std::move(capture);
  stream->capture_dependencies.clear();
  capture_count_.store(captures_.size(), std::memory_order_release);
  return {};
}

Answer Engine::end_capture(const StreamPointer& stream, GraphPointer& graph) {
  graph.reset();
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_implicit_use(lock, stream); !answer.ok()) {
    return answer;
  }
  const auto capture = stream->capture;
  if (!capture) {
    return {abi::CUDA_ERROR_ILLEGAL_STATE, Rule::capture_begun, "the stream is not being captured"};
  }
  if (capture->streams.front() != stream) {
    capture->invalidated = true;
    return {abi::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, Rule::capture_ends_where_begun,
            "this stream joined it by an event"};
  }
  const bool foreign = capture->mode != abi::CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread_number();
  const bool invalidated = capture->invalidated;
  const auto captured = capture->graph;
  const bool joined = all_before(*captured, stream->capture_dependencies);
  finish_capture(lock, *capture);
  if (foreign) {
    return {abi::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, Rule::capture_ends_in_its_thread, "the capture is lost now"};
  }
  if (invalidated) {
    return answer_invalidated();
  }
  if (!joined) {
    return {abi::CUDA_ERROR_STREAM_CAPTURE_UNJOINED, Rule::capture_joined,
            "the first stream does not wait for work that was captured in another"};
  }
  graph = captured;
  return {};
}

void Engine::finish_capture(Lock& lock, Capture& capture) {
  capture.ended = true;
  const auto streams = std::exchange(capture.streams, {});
  const auto self =
      std::find_if(captures_.begin(), captures_.end(), [&](const auto& other) { return other.get() == &capture; });
  const std::shared_ptr<Capture> kept = *self;
  captures_.erase(self);
  capture_count_.store(captures_.size(), std::memory_order_release);
  for (const StreamPointer& stream : streams) {
    stream->capture.reset();
    stream->capture_dependencies.clear();
  }
  lock.keep(kept);
}

void Engine::end_captures_of(Lock& lock, const Context& context) {
  const auto concerned = [&](const auto& capture) {
    return std::any_of(capture->streams.begin(), capture->streams.end(),
                       [&](const auto& stream) { return stream->context.get() == &context; });
  };
  for (auto found = captures_.begin(); found != captures_.end();) {
    found = std::find_if(captures_.begin(), captures_.end(), concerned);
    if (found != captures_.end()) {
      finish_capture(lock, *std::shared_ptr<Capture>(*found));
      found = captures_.begin();
    }
  }
}

Answer Engine::is_capturing(const StreamPointer& stream, abi::CUstreamCaptureStatus& status) {
  CaptureInfo info;
  Answer answer = capture_info(stream, info);
  if (answer.ok()) {
    status = info.status;
  }
  return answer;
}

Answer Engine::capture_info(const StreamPointer& stream, CaptureInfo& info) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_implicit_use(lock, stream, false); !answer.ok()) {
    return answer;
  }
  info = {};
  const auto capture = stream->capture;
  if (!capture) {
    return {};
  }
  info.status = capture->status();
  if (!capture->invalidated) {
    info.id = capture->id;
    info.graph = capture->graph;
    info.dependencies = stream->capture_dependencies;
  }
  return {};
}

Answer Engine::update_capture_dependencies(const StreamPointer& stream, const std::vector<const GraphNode*>& nodes,
                                           bool replace) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  const auto capture = stream->capture;
  if (!capture) {
    return {abi::CUDA_ERROR_ILLEGAL_STATE, Rule::capture_begun, "the stream is not being captured"};
  }
  if (capture->invalidated) {
    return answer_invalidated();
  }
  auto dependencies = replace ? std::vector<const GraphNode*>() : stream->capture_dependencies;
  for (const GraphNode* node : nodes) {
    const bool known = std::any_of(capture->graph->nodes.begin(), capture->graph->nodes.end(),
                                   [&](const auto& own) { return own.get() == node; });
    if (!known) {
      return {abi::CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
              "a dependency must be a node of the graph that is being captured"};
    }
    if (!contains(dependencies, node)) {
      dependencies.push_back(node);
    }
  }
  stream->capture_dependencies = std::move(dependencies);
  return {};
}

abi::CUstreamCaptureMode Engine::thread_mode(const Lock&) const {
  const auto found = thread_modes_.find(this_thread_number());
  return found == thread_modes_.end() ? abi::CU_STREAM_CAPTURE_MODE_GLOBAL : found->second.mode;
}

Answer Engine::exchange_capture_mode(abi::CUstreamCaptureMode& mode) {
  Lock lock(scheduler_);
  const abi::CUstreamCaptureMode former = thread_mode(lock);
  if (mode == abi::CU_STREAM_CAPTURE_MODE_GLOBAL) {
    thread_modes_.erase(this_thread_number());
  } else {
    std::erase_if(thread_modes_, [](const auto& entry) { return entry.second.thread.expired(); });
    const auto thread = this_thread_life();  // what needs memory comes first
    thread_modes_[this_thread_number()] = {mode, thread};
  }
  mode = former;
  return {};
}

}  // namespace cuvmm::emulator::execution
