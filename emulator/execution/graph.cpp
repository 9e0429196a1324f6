#include "emulator/execution/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cuvmm::emulator::execution {

namespace {

// The state of one launch. A copy that has not been run yet is a launch that has not begun.
class GraphRun {
 public:
  explicit GraphRun(std::shared_ptr<const GraphExec> exec) : exec_(std::move(exec)) {}

  Outcome operator()() {
    if (!begun_) {
      begin();
    }
    bool unfinished = false;
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
      Outcome outcome = node.run ? attempt(node.kind, state.run) : Outcome::done();
      if (outcome.state == Outcome::State::fault) {
        outcome.why = fmt::format("graph node {} ({}): {}", index,
                                  node.description.empty() ? name_of(node.kind) : node.description, outcome.why);
        return outcome;
      }
      state.done = outcome.state == Outcome::State::done;
      unfinished = unfinished || !state.done;
    }
    return unfinished ? Outcome::again() : Outcome::done();
  }

 private:
  struct State {
    std::function<Outcome()> run;
    bool done = false;
  };

  void begin() {
    begun_ = true;
    for (const GraphExec::Node& node : exec_->nodes) {
      states_.push_back({node.run, false});
    }
  }

  [[nodiscard]] bool ready(std::size_t index) const {
    const auto& dependencies = exec_->nodes[index].dependencies;
    return std::all_of(dependencies.begin(), dependencies.end(),
                       [this](std::size_t dependency) { return states_[dependency].done; });
  }

  std::shared_ptr<const GraphExec> exec_;
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

GraphExec::GraphExec(std::uint64_t id_, const Graph& graph) : id(id_) {
  for (const auto& node : graph.nodes) {
    std::vector<std::size_t> dependencies;
    for (const GraphNode* dependency : node->dependencies) {
      dependencies.push_back(dependency->index);
    }
    const Operation& operation = node->operation;
    nodes.push_back({operation.kind, operation.run, operation.description, std::move(dependencies)});
    touches.insert(touches.end(), operation.touches.begin(), operation.touches.end());
    external_records.insert(external_records.end(), operation.external_records.begin(),
                            operation.external_records.end());
  }
}

Operation launch_operation(std::shared_ptr<const GraphExec> exec) {
  Operation operation;
  operation.kind = OperationKind::graph;
  operation.description = fmt::format("launch of a graph of {} nodes", exec->nodes.size());
  operation.touches = exec->touches;
  operation.external_records = exec->external_records;
  operation.run = GraphRun(std::move(exec));
  return operation;
}

}  // namespace cuvmm::emulator::execution
