// Instantiating and launching graphs.
#include <algorithm>

#include "emulator/execution/engine.hpp"

namespace cuvmm::emulator::execution {

bool Engine::being_captured(const GraphPointer& graph) {
  Lock lock(scheduler_);
  return std::any_of(captures_.begin(), captures_.end(), [&](const auto& capture) { return capture->graph == graph; });
}

Answer Engine::instantiate(const GraphPointer& graph, GraphExecPointer& exec) {
  if (!graph) {
    return {abi::CUDA_ERROR_INVALID_VALUE, "there is no such graph"};
  }
  if (being_captured(graph)) {
    return {abi::CUDA_ERROR_ILLEGAL_STATE, "the graph is being captured; end the capture first (cuStreamEndCapture)"};
  }
  exec = std::make_shared<const GraphExec>(next_id_++, *graph);
  return {};
}

Answer Engine::launch(const GraphExecPointer& exec, const StreamPointer& stream) {
  Lock lock(scheduler_);
  if (Answer answer = usable(lock, stream); !answer.ok()) {
    return answer;
  }
  if (!exec) {
    return {abi::CUDA_ERROR_INVALID_VALUE, "there is no such instantiated graph"};
  }
  if (Answer answer = forbid_observing_capture(lock, stream, "launching a graph in"); !answer.ok()) {
    return answer;
  }
  return accept(lock, stream, launch_operation(exec));
}

}  // namespace cuvmm::emulator::execution
