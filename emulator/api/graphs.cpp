// Capture and graphs.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

// A node's address is its handle: nodes live as long as their graph.
CUgraphNode handle_of(const execution::GraphNode* node) {
  return reinterpret_cast<CUgraphNode>(const_cast<execution::GraphNode*>(node));
}

}  // namespace

CUresult EmulatedDriver::cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return initialised([&]() -> Answer {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("mode is {}", static_cast<int>(mode))};
    StreamEntry entry;
    if (Answer refused = find_stream(stream, &entry); !refused.ok()) return refused;
    return engine_.begin_capture(entry.stream, mode);
  });
}

CUresult EmulatedDriver::cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return initialised([&]() -> Answer {
    StreamEntry entry;
    if (Answer refused = find_stream(stream, &entry); !refused.ok()) return refused;
    if (graph != nullptr) *graph = nullptr;
    // Together, so that nobody takes the graph for a lost one in between.
    const std::lock_guard lock(captured_graphs_mutex_);
    // A capture ends once, so that what needs memory comes first: the graph's handle.
    execution::CaptureInfo open;
    const bool named = graph != nullptr && engine_.capture_info(entry.stream, open).ok() && open.graph != nullptr &&
                       !captured_graphs_.contains(open.graph->id);
    if (named) (void)graph_handle_locked(open.graph);
    const auto unname = [&]() noexcept {
      const auto known = named ? captured_graphs_.find(open.graph->id) : captured_graphs_.end();
      if (known == captured_graphs_.end()) return;
      (void)graphs_.take(known->second.handle);
      captured_graphs_.erase(known);
    };
    execution::GraphPointer captured;
    try {
      if (Answer refused = engine_.end_capture(entry.stream, captured); !refused.ok()) {
        unname();
        forget_lost_graphs_locked();
        return refused;
      }
    } catch (...) {
      unname();
      throw;
    }
    const bool known = captured_graphs_.contains(captured->id);
    if (graph == nullptr && !known) return {};
    const CUgraph handle = graph_handle_locked(captured);
    captured_graphs_.at(captured->id).finished = true;
    if (graph != nullptr) *graph = handle;
    return {};
  });
}

// A capture's graph has one handle, whether it is first seen through cuStreamGetCaptureInfo or at the capture's end.
CUgraph EmulatedDriver::graph_handle_locked(const execution::GraphPointer& graph) {
  auto [known, added] = captured_graphs_.try_emplace(graph->id);
  if (!added) return known->second.handle;
  try {
    return known->second.handle = graphs_.add(graph);
  } catch (...) {
    captured_graphs_.erase(known);
    throw;
  }
}

// A capture that does not end well leaves no graph, though cuStreamGetCaptureInfo may have given out its handle.
void EmulatedDriver::forget_lost_graphs() {
  const std::lock_guard lock(captured_graphs_mutex_);
  forget_lost_graphs_locked();
}

void EmulatedDriver::forget_lost_graphs_locked() {
  std::erase_if(captured_graphs_, [&](const auto& entry) {
    const CapturedGraph& captured = entry.second;
    if (captured.finished || engine_.being_captured(graphs_.find(captured.handle))) return false;
    (void)graphs_.take(captured.handle);
    return true;
  });
}

CUresult EmulatedDriver::cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return initialised([&]() -> Answer {
    if (status == nullptr) return null_output("captureStatus");
    StreamEntry entry;
    if (Answer refused = find_stream(stream, &entry); !refused.ok()) return refused;
    return engine_.is_capturing(entry.stream, *status);
  });
}

CUresult EmulatedDriver::cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, unsigned long long* id,
                                                CUgraph* graph, const CUgraphNode** dependencies,
                                                size_t* dependency_count) {
  return initialised([&]() -> Answer {
    if (status == nullptr) return null_output("captureStatus_out");
    StreamEntry entry;
    if (Answer refused = find_stream(stream, &entry); !refused.ok()) return refused;
    execution::CaptureInfo info;
    if (Answer refused = engine_.capture_info(entry.stream, info); !refused.ok()) return refused;
    *status = info.status;
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return {};
    // The list is the driver's; it stays valid until the thread asks again.
    thread_local std::vector<CUgraphNode> nodes;
    nodes.clear();
    for (const execution::GraphNode* node : info.dependencies) nodes.push_back(handle_of(node));
    if (id != nullptr) *id = info.id;
    if (graph != nullptr) {
      const std::lock_guard lock(captured_graphs_mutex_);
      *graph = graph_handle_locked(info.graph);
      forget_lost_graphs_locked();  // another thread may have ended the capture
    }
    if (dependencies != nullptr) *dependencies = nodes.data();
    if (dependency_count != nullptr) *dependency_count = nodes.size();
    return {};
  });
}

CUresult EmulatedDriver::cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* dependencies,
                                                           size_t dependency_count, unsigned int flags) {
  return initialised([&]() -> Answer {
    constexpr unsigned set_dependencies = 1;  // CU_STREAM_SET_CAPTURE_DEPENDENCIES; 0 adds
    StreamEntry entry;
    if (Answer refused = find_stream(stream, &entry); !refused.ok()) return refused;
    const bool captured = is_captured(entry.stream);  // that it is not is told first
    if (captured && (flags > set_dependencies || (dependencies == nullptr && dependency_count != 0)))
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
              fmt::format("dependencies must not be null, flags must be known (are {:#x})", flags)};
    if (!captured) dependency_count = 0;
    std::vector<const execution::GraphNode*> nodes;
    for (std::size_t index = 0; index < dependency_count; ++index)
      nodes.push_back(reinterpret_cast<const execution::GraphNode*>(dependencies[index]));
    return engine_.update_capture_dependencies(entry.stream, nodes, flags == set_dependencies);
  });
}

CUresult EmulatedDriver::cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return initialised([&]() -> Answer {
    if (mode == nullptr) return null_output("mode");
    if (*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      if (Answer refused = machine_.tolerated(Rule::capture_mode, fmt::format("mode is {}", static_cast<int>(*mode)));
          !refused.ok())
        return refused;
    return engine_.exchange_capture_mode(*mode);
  });
}

CUresult EmulatedDriver::cuGraphInstantiateWithFlags(CUgraphExec* graph_exec, CUgraph graph, unsigned long long flags) {
  return with_context([&](const ActiveContext&) -> Answer {
    if (graph_exec == nullptr) return null_output("phGraphExec");
    // UPLOAD (2) belongs to cuGraphInstantiateWithParams.
    constexpr unsigned long long known = 0xF & ~2ULL;
    if ((flags & ~known) != 0)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}", flags)};
    execution::GraphExecPointer made;
    if (Answer refused = engine_.instantiate(graphs_.find(graph), made); !refused.ok()) return refused;
    *graph_exec = graph_execs_.add(std::make_shared<GraphExecEntry>(GraphExecEntry{std::move(made), flags}));
    return {};
  });
}

// Nothing is to be prepared for a launch, but the handles are looked at.
CUresult EmulatedDriver::cuGraphUpload(CUgraphExec graph, CUstream stream) {
  return initialised([&]() -> Answer {
    StreamEntry entry;
    if (Answer refused = find_working_stream(stream, &entry); !refused.ok()) return refused;
    if (graph_execs_.find(graph) == nullptr)
      return {CUDA_ERROR_INVALID_VALUE, Rule::graph_live, fmt::format("{} is no graph exec", fmt::ptr(graph))};
    return engine_.check_not_captured(entry.stream, "cuGraphUpload");
  });
}

CUresult EmulatedDriver::cuGraphExecDestroy(CUgraphExec graph_exec) {
  return initialised([&]() -> Answer {
    if (graph_execs_.take(graph_exec) == nullptr)
      return {CUDA_ERROR_INVALID_VALUE, Rule::graph_live, fmt::format("{} is no graph exec", fmt::ptr(graph_exec))};
    return {};
  });
}

CUresult EmulatedDriver::cuGraphDestroy(CUgraph graph) {
  return initialised([&]() -> Answer {
    const execution::GraphPointer found = graphs_.find(graph);
    if (found == nullptr)
      return {CUDA_ERROR_INVALID_VALUE, Rule::graph_live, fmt::format("{} is no graph", fmt::ptr(graph))};
    if (engine_.being_captured(found))
      return {CUDA_ERROR_ILLEGAL_STATE, Rule::graph_finished, "its capture has not ended"};
    (void)graphs_.take(graph);
    const std::lock_guard lock(captured_graphs_mutex_);
    captured_graphs_.erase(found->id);
    return {};
  });
}

CUresult EmulatedDriver::cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* node_count) {
  return initialised([&]() -> Answer {
    if (node_count == nullptr) return null_output("numNodes");
    const execution::GraphPointer found = graphs_.find(graph);
    if (found == nullptr)
      return {CUDA_ERROR_INVALID_VALUE, Rule::graph_live, fmt::format("{} is no graph", fmt::ptr(graph))};
    if (nodes == nullptr) {
      *node_count = found->nodes.size();
      return {};
    }
    // As the driver: places beyond the last node become null.
    for (std::size_t index = 0; index < *node_count; ++index)
      nodes[index] = index < found->nodes.size() ? handle_of(found->nodes[index].get()) : nullptr;
    *node_count = std::min(*node_count, found->nodes.size());
    return {};
  });
}

}  // namespace cuvmm::emulator::api
