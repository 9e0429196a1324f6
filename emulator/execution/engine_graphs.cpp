// Instantiating and launching graphs.
#include <algorithm>
#include <utility>

#include "emulator/execution/engine.hpp"

namespace cuvmm::emulator::execution {

bool Engine::being_captured(const GraphPointer& graph) {
  Lock lock(scheduler_);
  return std::any_of(captures_.begin(), captures_.end(), [&](const auto& capture) { return capture->graph == graph; });
}

Answer Engine::instantiate(const GraphPointer& graph, GraphExecPointer& exec) {
  if (!graph) {
    return {abi::CUDA_ERROR_INVALID_VALUE, Rule::graph_live, "there is no such graph"};
  }
  if (being_captured(graph)) {
    return {abi::CUDA_ERROR_ILLEGAL_STATE, Rule::graph_finished, "its capture has not ended"};
  }
  for (const auto& node : graph->nodes) {
    if (!node->operation.check) {
      continue;
    }
    if (Answer answer = node->operation.check(); !answer.ok()) {
      return answer;
    }
  }
  const bool has_memory = std::any_of(graph->nodes.begin(), graph->nodes.end(),
                                      [](const auto& node) { return node->operation.graph_memory.address != 0; });
  if (has_memory && !graph->instantiated.expired()) {
    return {abi::CUDA_ERROR_NOT_SUPPORTED, Rule::graph_memory,
            "the graph allocates memory, and is instantiated already"};
  }
  graph->instantiated = exec = std::make_shared<const GraphExec>(next_id_++, *graph);
  return {};
}

Answer Engine::launch(const GraphExecPointer& exec, const StreamPointer& stream) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (!exec) {
    return {abi::CUDA_ERROR_INVALID_VALUE, Rule::graph_live, "there is no such instantiated graph"};
  }
  if (Answer answer = forbid_observing_capture(lock, stream, "launching a graph in"); !answer.ok()) {
    return answer;
  }
  if (Answer answer = forbid_implicit_use(lock, stream); !answer.ok()) {
    return answer;
  }
  Records records;
  Operation operation = prepare_launch(lock, exec, records);
  Completions completes;
  completes.reserve(records.size());
  for (const auto& [event, record] : records) {
    completes.push_back(record);
  }
  // One launch at a time: each comes behind the one before, in whichever stream that is.
  Completions before;
  if (exec->last_launch && !exec->last_launch->done) {
    before.push_back(exec->last_launch);
  }
  exec->last_launch = enqueue(lock, stream, std::move(operation), std::move(before), false, std::move(completes));
  for (const auto& [event, record] : records) {  // from the launch on, the events stand for its records
    event->capture.reset();
    event->captured_dependencies.clear();
    event->record = record;
  }
  return {};
}

// What such a node does is made for each launch (prepare_launch).
Answer Engine::capture_external(Lock& lock, Stream& stream, OperationKind kind, const EventPointer& event) {
  Operation operation;
  operation.kind = kind;
  operation.external_event = event;
  return capture_operation(lock, stream, std::move(operation));
}

// Waits are made before the launch's own records are pending: each awaits what its event stands for at the launch, so
// that nothing behind the launch can hold it up.
Operation Engine::prepare_launch(const Lock& lock, const GraphExecPointer& exec, Records& records) {
  NodeRuns runs;
  for (std::size_t index = 0; index < exec->nodes.size(); ++index) {
    const GraphExec::Node& node = exec->nodes[index];
    if (node.external_event && node.kind == OperationKind::event_wait) {
      runs[index] = external_wait(lock, *exec, index);
    }
  }
  for (std::size_t index = 0; index < exec->nodes.size(); ++index) {
    const GraphExec::Node& node = exec->nodes[index];
    if (node.external_event && node.kind == OperationKind::event_record) {
      records.emplace_back(node.external_event, std::make_shared<Completion>());
      runs[index] = external_record(records.back().second);
    }
  }
  return launch_operation(exec, std::move(runs));
}

// Empty where there is nothing to wait for. A record node of the same event that comes before the wait in the graph is
// such a case: it has run by then.
std::function<Outcome()> Engine::external_wait(const Lock&, const GraphExec& exec, std::size_t node) {
  const EventPointer& event = exec.nodes[node].external_event;
  if (!event->record || event->record->done) {
    return {};
  }
  for (std::size_t index = 0; index < node; ++index) {
    const GraphExec::Node& other = exec.nodes[index];
    if (other.external_event == event && other.kind == OperationKind::event_record && exec.ordered(index, node)) {
      return {};
    }
  }
  return [this, record = event->record] {
    Lock lock(scheduler_);
    return record->done ? Outcome::done() : Outcome::again();
  };
}

std::function<Outcome()> Engine::external_record(const std::shared_ptr<Completion>& record) {
  return [this, record] {
    Lock lock(scheduler_);
    scheduler_.complete(lock, *record);
    return Outcome::done();
  };
}

}  // namespace cuvmm::emulator::execution
