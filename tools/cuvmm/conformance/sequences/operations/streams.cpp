// Streams, events, and which context is current.
#include "conformance/sequences/drawing.hpp"
#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {
namespace {

std::size_t slot_of(const Call& call, std::size_t argument = 0) {
  return static_cast<std::size_t>(call[argument]);
}

std::optional<std::int64_t> draw_stream(const World& world, Random& random, bool exists) {
  return draw_slot(
      world.streams, random, [](const StreamSlot& each) { return each.exists; }, exists);
}

std::optional<std::int64_t> draw_event(const World& world, Random& random, bool exists) {
  return draw_slot(
      world.events, random, [](const EventSlot& each) { return each.exists; }, exists);
}

// Calls of streams and events are made with device 0's context current: both belong to it.
std::optional<Call> in_first_context(const World& world, std::optional<std::int64_t> slot) {
  if (world.current != 0 || !slot) return std::nullopt;
  return Call{nullptr, {*slot}};
}

// cuCtxSetCurrent: device

std::optional<Call> draw_set_current(const World& world, Random& random) {
  if (world.captures()) return std::nullopt;
  if (world.current < 0 || (world.current > 0 && random.percent(50))) return Call{nullptr, {0}};
  return Call{nullptr, {world.devices > 1 && random.percent(80) ? 1 : -1}};
}

Step set_current(const Call& call, Player& player) {
  return {player->cuCtxSetCurrent(call[0] < 0 ? nullptr : player.context(static_cast<int>(call[0]))), ""};
}

void current_set(const Call& call, World& world) {
  world.current = static_cast<int>(call[0]);
}

// cuCtxSynchronize

std::optional<Call> draw_nothing(const World&, Random&) {
  return Call{};
}

Step synchronize(const Call&, Player& player) {
  return {player->cuCtxSynchronize(), ""};
}

void synchronized(const Call&, World& world) {
  world.pending = nothing_pending;
}

// cuStreamCreate: stream flags

std::optional<Call> draw_create(const World& world, Random& random) {
  auto call = in_first_context(world, draw_stream(world, random, false));
  if (call) call->arguments[1] = random.percent(90) ? CU_STREAM_NON_BLOCKING : random.one_of({2, 3, 256});
  return call;
}

Step create(const Call& call, Player& player) {
  CUstream stream = nullptr;
  const CUresult code = player->cuStreamCreate(&stream, static_cast<unsigned>(call[1]));
  if (code == CUDA_SUCCESS) player.streams.at(slot_of(call)) = stream;
  return {code, ""};
}

void created(const Call& call, World& world) {
  world.streams.at(slot_of(call)).exists = true;
}

// cuStreamDestroy, cuStreamSynchronize, cuStreamQuery: stream

std::optional<Call> draw_destroy(const World& world, Random& random) {
  if (world.captures()) return std::nullopt;
  return in_first_context(world, draw_stream(world, random, true));
}

std::optional<Call> draw_existing(const World& world, Random& random) {
  if (world.captures() && random.percent(70)) return std::nullopt;  // most ways to capture refuse it, and end
  return in_first_context(world, draw_stream(world, random, true));
}

Step destroy(const Call& call, Player& player) {
  return {player->cuStreamDestroy(player.streams.at(slot_of(call))), ""};
}

void destroyed(const Call& call, World& world) {
  world.streams.at(slot_of(call)).exists = false;
}

Step stream_synchronize(const Call& call, Player& player) {
  return {player->cuStreamSynchronize(player.streams.at(slot_of(call))), ""};
}

void stream_synchronized(const Call& call, World& world) {
  if (world.pending == call[0]) world.pending = nothing_pending;
}

Step query(const Call& call, Player& player) {
  return {player->cuStreamQuery(player.streams.at(slot_of(call))), ""};
}

// cuEventCreate: event flags; cuEventDestroy, cuEventQuery, cuEventSynchronize: event

std::optional<Call> draw_event_create(const World& world, Random& random) {
  auto call = in_first_context(world, draw_event(world, random, false));
  if (call) call->arguments[1] = random.percent(85) ? random.one_of({0, 2}) : random.one_of({4, 8});
  return call;
}

Step event_create(const Call& call, Player& player) {
  CUevent event = nullptr;
  const CUresult code = player->cuEventCreate(&event, static_cast<unsigned>(call[1]));
  if (code == CUDA_SUCCESS) player.events.at(slot_of(call)) = event;
  return {code, ""};
}

void event_created(const Call& call, World& world) {
  world.events.at(slot_of(call)) = {true, 0};
}

std::optional<Call> draw_existing_event(const World& world, Random& random) {
  return in_first_context(world, draw_event(world, random, true));
}

std::optional<Call> draw_event_destroy(const World& world, Random& random) {
  if (world.captures()) return std::nullopt;
  return draw_existing_event(world, random);
}

Step event_destroy(const Call& call, Player& player) {
  return {player->cuEventDestroy(player.events.at(slot_of(call))), ""};
}

void event_destroyed(const Call& call, World& world) {
  world.events.at(slot_of(call)).exists = false;
  world.graph.launchable = false;  // it may wait for that event
}

Step event_query(const Call& call, Player& player) {
  return {player->cuEventQuery(player.events.at(slot_of(call))), ""};
}

Step event_synchronize(const Call& call, Player& player) {
  return {player->cuEventSynchronize(player.events.at(slot_of(call))), ""};
}

// cuEventRecord: stream event; cuStreamWaitEvent: stream event flags. The legacy stream is among them. While a stream
// captures it is mostly that one, so that others join the capture rarely, and join with it again.

std::optional<Call> draw_stream_and_event(const World& world, Random& random) {
  auto call = in_first_context(world, draw_stream(world, random, true));
  const auto event = draw_event(world, random, true);
  if (!call || !event) return std::nullopt;
  if (random.percent(world.captures() ? 2 : 10)) call->arguments[0] = legacy_stream_pending;
  if (world.captures() && random.percent(60)) call->arguments[0] = world.capturing;
  call->arguments[1] = *event;
  return call;
}

// Not of other streams while one captures: what they record is outside.
std::optional<Call> draw_record(const World& world, Random& random) {
  auto call = draw_stream_and_event(world, random);
  if (call && world.captures() && !world.captures((*call)[0])) return std::nullopt;
  return call;
}

Step record(const Call& call, Player& player) {
  return {player->cuEventRecord(player.events.at(slot_of(call, 1)), player.stream(call[0])), ""};
}

void recorded(const Call& call, World& world) {
  world.events.at(slot_of(call, 1)).capture = world.captures(call[0]) ? world.capture : 0;
}

std::optional<Call> draw_wait(const World& world, Random& random) {
  auto call = draw_stream_and_event(world, random);
  if (!call) return call;
  if (world.captures() && random.percent(90)) {  // others end the capture
    const auto inside = draw_slot(
        world.events, random, [&](const EventSlot& each) { return each.exists && each.capture == world.capture; },
        true);
    if (!inside) return std::nullopt;
    call->arguments[1] = *inside;
    const auto other = draw_slot(
        world.streams, random, [](const StreamSlot& each) { return each.exists && !each.joined; }, true);
    if (other && random.percent(70)) call->arguments[0] = *other;
  }
  const bool captured = world.events.at(slot_of(*call, 1)).capture != 0;
  if (world.captures() && !captured && !world.captures((*call)[0])) return std::nullopt;
  call->arguments[2] = random.percent(90) ? 0 : random.one_of({1, 2});
  return call;
}

Step wait(const Call& call, Player& player) {
  return {player->cuStreamWaitEvent(player.stream(call[0]), player.events.at(slot_of(call, 1)),
                                    static_cast<unsigned>(call[2])),
          ""};
}

void waited(const Call& call, World& world) {
  const bool joins = world.captures() && world.events.at(slot_of(call, 1)).capture == world.capture;
  if (joins && call[0] != legacy_stream_pending && call[0] != world.capturing)
    world.streams.at(slot_of(call)).joined = true;
}

// cuThreadExchangeStreamCaptureMode: mode

std::optional<Call> draw_exchange(const World&, Random& random) {
  return Call{nullptr, {random.percent(92) ? random.below(3) : 3}};
}

Step exchange(const Call& call, Player& player) {
  auto mode = static_cast<CUstreamCaptureMode>(call[0]);
  const CUresult code = player->cuThreadExchangeStreamCaptureMode(&mode);
  return {code, std::to_string(static_cast<int>(mode))};
}

}  // namespace

std::vector<Operation> stream_operations() {
  return {
      {"cuCtxSetCurrent", "device", 18, Order::all_done, draw_set_current, set_current, current_set},
      {"cuCtxSynchronize", "", 12, Order::any, draw_nothing, synchronize, synchronized},
      {"cuStreamCreate", "stream flags", 40, Order::any, draw_create, create, created},
      {"cuStreamDestroy", "stream", 5, Order::all_done, draw_destroy, destroy, destroyed},
      {"cuStreamSynchronize", "stream", 10, Order::any, draw_existing, stream_synchronize, stream_synchronized},
      {"cuStreamQuery", "stream", 8, Order::all_done, draw_existing, query, nullptr},
      {"cuEventCreate", "event flags", 30, Order::any, draw_event_create, event_create, event_created},
      {"cuEventDestroy", "event", 5, Order::all_done, draw_event_destroy, event_destroy, event_destroyed},
      {"cuEventQuery", "event", 20, Order::all_done, draw_existing_event, event_query, nullptr},
      {"cuEventSynchronize", "event", 8, Order::all_done, draw_existing_event, event_synchronize, nullptr},
      {"cuEventRecord", "stream event", 110, Order::by_stream, draw_record, record, recorded},
      {"cuStreamWaitEvent", "stream event flags", 110, Order::by_stream, draw_wait, wait, waited},
      {"cuThreadExchangeStreamCaptureMode", "mode", 3, Order::any, draw_exchange, exchange, nullptr},
  };
}

}  // namespace cuvmm::conformance
