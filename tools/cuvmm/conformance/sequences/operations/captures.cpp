// Capture, and the graphs that come of it.
#include "conformance/sequences/drawing.hpp"
#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {
namespace {

std::size_t slot_of(const Call& call) {
  return static_cast<std::size_t>(call[0]);
}

// cuStreamBeginCapture: stream mode

std::optional<Call> draw_begin(const World& world, Random& random) {
  if (world.captures() && random.percent(8)) return Call{nullptr, {world.capturing, random.below(3)}};
  if (world.captures() || world.graph.exists || world.current != 0) return std::nullopt;
  const auto stream = draw_slot(
      world.streams, random, [](const StreamSlot& each) { return each.exists; }, true);
  if (!stream) return std::nullopt;
  return Call{nullptr, {*stream, random.percent(95) ? random.below(3) : 3}};
}

Step begin(const Call& call, Player& player) {
  return {player->cuStreamBeginCapture(player.streams.at(slot_of(call)), static_cast<CUstreamCaptureMode>(call[1])),
          ""};
}

void begun(const Call& call, World& world) {
  world.capturing = static_cast<int>(call[0]);
  ++world.capture;
  world.graph = {};
}

// cuStreamEndCapture: stream, which is not always the one with which the capture began

std::optional<Call> draw_end(const World& world, Random& random) {
  const auto joined = draw_slot(
      world.streams, random, [](const StreamSlot& each) { return each.joined; }, true);
  if (joined && random.percent(15)) return Call{nullptr, {*joined}};
  if (world.captures()) return Call{nullptr, {world.capturing}};
  const auto stream = draw_slot(
      world.streams, random, [](const StreamSlot& each) { return each.exists; }, true);
  if (!stream || world.current != 0 || !random.percent(10)) return std::nullopt;
  return Call{nullptr, {*stream}};
}

Step end(const Call& call, Player& player) {
  CUgraph graph = nullptr;
  const CUresult code = player->cuStreamEndCapture(player.streams.at(slot_of(call)), &graph);
  if (code == CUDA_SUCCESS) player.graph = graph;
  return {code, graph == nullptr ? "0" : "1"};
}

void graph_made(const Call&, World& world) {
  world.graph.exists = true;
}

// An invalidated capture ends with this call too, although it fails.
void capture_ended(const Call& call, World& world) {
  if (world.capturing != call[0]) return;
  world.capturing = -1;
  for (StreamSlot& each : world.streams) each.joined = false;
}

// cuStreamIsCapturing: stream

std::optional<Call> draw_existing(const World& world, Random& random) {
  const auto stream = draw_slot(
      world.streams, random, [](const StreamSlot& each) { return each.exists; }, true);
  if (!stream || world.current != 0) return std::nullopt;
  return Call{nullptr, {*stream}};
}

Step is_capturing(const Call& call, Player& player) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult code = player->cuStreamIsCapturing(player.streams.at(slot_of(call)), &status);
  return {code, std::to_string(static_cast<int>(status))};
}

// cuGraphInstantiateWithFlags, cuGraphDestroy, cuGraphExecDestroy; cuGraphLaunch: stream

std::optional<Call> draw_instantiate(const World& world, Random&) {
  if (!world.graph.exists || world.graph.executable || world.current != 0 || world.captures()) return std::nullopt;
  return Call{};
}

Step instantiate(const Call&, Player& player) {
  return {player->cuGraphInstantiateWithFlags(&player.graph_exec, player.graph, 0), ""};
}

void instantiated(const Call&, World& world) {
  world.graph.executable = true;
}

std::optional<Call> draw_launch(const World& world, Random& random) {
  if (!world.graph.executable || !world.graph.launchable || world.captures()) return std::nullopt;
  return draw_existing(world, random);
}

Step launch(const Call& call, Player& player) {
  return {player->cuGraphLaunch(player.graph_exec, player.streams.at(slot_of(call))), ""};
}

void launched(const Call&, World& world) {
  world.mark_written(world.graph.written);
}

std::optional<Call> draw_exec_destroy(const World& world, Random&) {
  if (!world.graph.executable || world.captures()) return std::nullopt;
  return Call{};
}

Step exec_destroy(const Call&, Player& player) {
  return {player->cuGraphExecDestroy(player.graph_exec), ""};
}

void exec_destroyed(const Call&, World& world) {
  world.graph.executable = false;
}

std::optional<Call> draw_destroy(const World& world, Random&) {
  if (!world.graph.exists || world.graph.executable || world.captures()) return std::nullopt;
  return Call{};
}

Step destroy(const Call&, Player& player) {
  return {player->cuGraphDestroy(player.graph), ""};
}

void destroyed(const Call&, World& world) {
  world.graph = {};
}

}  // namespace

std::vector<Operation> capture_operations() {
  return {
      {"cuStreamBeginCapture", "stream mode", 45, Order::all_done, draw_begin, begin, begun},
      {"cuStreamEndCapture", "stream", 28, Order::any, draw_end, end, graph_made, capture_ended},
      {"cuStreamIsCapturing", "stream", 6, Order::any, draw_existing, is_capturing, nullptr},
      {"cuGraphInstantiateWithFlags", "", 150, Order::any, draw_instantiate, instantiate, instantiated},
      {"cuGraphLaunch", "stream", 200, Order::by_stream, draw_launch, launch, launched},
      {"cuGraphExecDestroy", "", 12, Order::all_done, draw_exec_destroy, exec_destroy, exec_destroyed},
      {"cuGraphDestroy", "", 15, Order::any, draw_destroy, destroy, destroyed},
  };
}

}  // namespace cuvmm::conformance
