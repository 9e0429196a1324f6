#include "emulator/execution/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cuvmm::emulator::execution {

namespace {

// The state of one launch. A copy that has not been run yet is a launch that has not begun.
class GraphRun {
 public:
  GraphRun(std::shared_ptr<const GraphExec> exec, NodeRuns instead)
      : exec_(std::move(exec)), instead_(std::move(instead)) {}

  Outcome operator()() {
    if (!begun_) {
      begin();
    }
    bool unfinished = false;
    bool advanced = false;
    for (std::size_t index = 0; index < states_.size(); ++index) {
      State& state = states_[index];
      if (state.done) {
        continue;
      }
      if (!ready(index)) {
        unfinished = true;
        continue;
      }
      const GraphExec::Node& node = exec_->nodes[index];
      Outcome outcome = state.run ? attempt(node.kind, state.run) : Outcome::done();
      if (outcome.state == Outcome::State::short_of_memory) {
        return outcome;
      }
      if (outcome.state == Outcome::State::fault) {
        outcome.why = fmt::format("graph node {} ({}): {}", index,
                                  node.description.empty() ? name_of(node.kind) : node.description, outcome.why);
        return outcome;
      }
      state.done = outcome.state == Outcome::State::done;
      unfinished = unfinished || !state.done;
      advanced = advanced || state.done || outcome.state == Outcome::State::advanced;
    }
    if (!unfinished) {
      return Outcome::done();
    }
    return advanced ? Outcome::advanced() : Outcome::again();
  }

 private:
  struct State {
    std::function<Outcome()> run;
    bool done = false;
  };

  void begin() {
    std::vector<State> states;
    for (std::size_t index = 0; index < exec_->nodes.size(); ++index) {
      const auto own = instead_.find(index);
      states.push_back({own == instead_.end() ? exec_->nodes[index].run : own->second, false});
    }
    states_ = std::move(states);
    begun_ = true;
  }

  [[nodiscard]] bool ready(std::size_t index) const {
    const auto& dependencies = exec_->nodes[index].dependencies;
    return std::all_of(dependencies.begin(), dependencies.end(),
                       [this](std::size_t dependency) { return states_[dependency].done; });
  }

  std::shared_ptr<const GraphExec> exec_;
  NodeRuns instead_;
  std::vector<State> states_;
  bool begun_ = false;
};

}  // namespace

const GraphNode* Graph::add(Operation operation, std::vector<const GraphNode*> dependencies) {
  nodes.push_back(std::make_unique<GraphNode>(GraphNode{nodes.size(), std::move(operation), std::move(dependencies)}));
  return nodes.back().get();
}

bool all_before(const Graph& graph, const std::vector<const GraphNode*>& last) {
  std::vector<bool> before(graph.nodes.size(), false);
  for (const GraphNode* node : last) {
    before[node->index] = true;
  }
  // Dependencies have smaller indices, so one pass from the end finds all.
  for (std::size_t index = graph.nodes.size(); index-- > 0;) {
    if (!before[index]) {
      continue;
    }
    for (const GraphNode* dependency : graph.nodes[index]->dependencies) {
      before[dependency->index] = true;
    }
  }
  return std::all_of(before.begin(), before.end(), [](bool is_before) { return is_before; });
}

GraphExec::GraphExec(std::uint64_t id_, const Graph& graph) : id(id_), kept(graph.kept) {
  for (const auto& node : graph.nodes) {
    std::vector<std::size_t> dependencies;
    for (const GraphNode* dependency : node->dependencies) {
      dependencies.push_back(dependency->index);
    }
    const Operation& operation = node->operation;
    nodes.push_back({operation.kind, operation.run, operation.description, std::move(dependencies),
                     operation.external_event, operation.graph_memory});
    touches.insert(touches.end(), operation.touches.begin(), operation.touches.end());
  }
}

bool GraphExec::ordered(std::size_t first, std::size_t second) const {
  std::vector<bool> before(second + 1, false);
  before[second] = true;
  // Dependencies have smaller indices, so one pass from the end finds all.
  for (std::size_t index = second; index > first; --index) {
    if (before[index]) {
      for (const std::size_t dependency : nodes[index].dependencies) {
        before[dependency] = true;
      }
    }
  }
  return first < second && before[first];
}

Operation launch_operation(std::shared_ptr<const GraphExec> exec, NodeRuns instead) {
  Operation operation;
  operation.kind = OperationKind::graph;
  operation.description = fmt::format("launch of a graph of {} nodes", exec->nodes.size());
  operation.touches = exec->touches;
  operation.run = GraphRun(std::move(exec), std::move(instead));
  return operation;
}

}  // namespace cuvmm::emulator::execution
