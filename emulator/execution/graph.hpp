// Graphs: operations with dependencies, made by capture, and what is launched of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "emulator/execution/event.hpp"
#include "emulator/execution/operation.hpp"

namespace cuvmm::emulator::execution {

struct GraphExec;

struct GraphNode {
  std::size_t index = 0;  // its place in Graph::nodes; dependencies have smaller ones
  Operation operation;
  std::vector<const GraphNode*> dependencies;
};

// Node addresses stay valid as long as the graph. Guarded by the engine's mutex while it is being captured; after that
// nothing changes it.
struct Graph {
  explicit Graph(std::uint64_t id_) : id(id_) {}

  const std::uint64_t id;
  std::vector<std::unique_ptr<GraphNode>> nodes;
  std::vector<std::shared_ptr<void>> kept;              // objects that live as long as the graph and what is made of it
  mutable std::weak_ptr<const GraphExec> instantiated;  // the latest; guarded by the engine's mutex

  const GraphNode* add(Operation operation, std::vector<const GraphNode*> dependencies);
};

// Whether every node is one of `last` or comes before one of them.
[[nodiscard]] bool all_before(const Graph& graph, const std::vector<const GraphNode*>& last);

// An instantiated graph: a copy, independent of the Graph that it was made from. Immutable but for what the engine
// notes.
struct GraphExec {
  struct Node {
    OperationKind kind;
    std::function<Outcome()> run;
    std::string description;
    std::vector<std::size_t> dependencies;  // indices of nodes before this one
    std::shared_ptr<Event> external_event;  // of an external record or wait node
    GraphMemoryNode graph_memory;
  };

  GraphExec(std::uint64_t id_, const Graph& graph);

  const std::uint64_t id;
  std::vector<Node> nodes;
  std::vector<TouchedRange> touches;                // of all nodes
  std::vector<std::shared_ptr<void>> kept;          // Graph::kept
  mutable std::shared_ptr<Completion> last_launch;  // guarded by the engine's mutex

  // Whether a launch runs node `first` before node `second` in any case.
  [[nodiscard]] bool ordered(std::size_t first, std::size_t second) const;
};

// What one launch has some nodes do in place of GraphExec::Node::run, by their index.
using NodeRuns = std::map<std::size_t, std::function<Outcome()>>;

// One operation that runs every node of `exec` once, each after those it depends on; while one answers `again`, nodes
// that do not depend on it go on. It keeps `exec` alive.
[[nodiscard]] Operation launch_operation(std::shared_ptr<const GraphExec> exec, NodeRuns instead = {});

}  // namespace cuvmm::emulator::execution
