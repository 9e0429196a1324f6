#include "conformance/sequences/generator.hpp"

#include <algorithm>
#include <exception>
#include <numeric>

namespace cuvmm::conformance {
namespace {

int sum_of_weights() {
  static const int sum = [] {
    const auto& all = operations();
    return std::accumulate(all.begin(), all.end(), 0,
                           [](int so_far, const Operation& each) { return so_far + each.weight; });
  }();
  return sum;
}

// Geometrically distributed, and cut off.
int draw_length(Random& random) {
  int length = 1;
  while (length < Generator::most_length && random.below(Generator::mean_length) != 0) ++length;
  return length;
}

bool is_sound(const MappedMemory& mapping, const World& world) {
  const std::int64_t memory_bytes =
      world.memories.at(static_cast<std::size_t>(mapping.memory)).granules * granule_bytes;
  const ReservedAddresses* const reserved = world.reservation_at(mapping.place);
  return mapping.bytes >= granule_bytes && mapping.bytes <= memory_bytes && reserved != nullptr &&
         mapping.end() <= reserved->end();
}

// Whether the world can be one of a driver's, so that calls can be drawn from it.
bool is_sound(const World& world) {
  constexpr std::int64_t most_reserved_bytes = std::int64_t{1} << 48;
  return std::all_of(world.memories.begin(), world.memories.end(),
                     [](const Memory& each) { return each.granules >= 1 && each.granules <= most_memory_granules; }) &&
         std::all_of(world.reservations.begin(), world.reservations.end(),
                     [](const ReservedAddresses& each) {
                       return each.bytes >= granule_bytes && each.bytes <= most_reserved_bytes;
                     }) &&
         std::all_of(world.mappings.begin(), world.mappings.end(),
                     [&](const MappedMemory& each) { return is_sound(each, world); });
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> list;
    for (const auto& group : {memory_operations(), address_operations(), mapping_operations(), content_operations(),
                              query_operations(), stream_operations(), capture_operations()})
      list.insert(list.end(), group.begin(), group.end());
    return list;
  }();
  return all;
}

Generator::Generator(std::uint64_t seed, int devices) : random_(seed) {
  world_.devices = devices;
  left_ = draw_length(random_);
}

const Operation& Generator::draw_operation() {
  auto at = random_.below(sum_of_weights());
  for (const Operation& each : operations()) {
    if (at < each.weight) return each;
    at -= each.weight;
  }
  return operations().back();
}

std::optional<Call> Generator::next() {
  if (left_ == 0) return std::nullopt;
  --left_;
  while (true) {
    const Operation& operation = draw_operation();
    std::optional<Call> call = operation.draw(world_, random_);
    if (!call) continue;
    call->operation = &operation;
    must_settle_ = needs_settling(*call);
    if (must_settle_ && world_.captures()) continue;  // it cannot be waited while a stream captures
    if (must_settle_) world_.pending = nothing_pending;
    last_ = *call;
    checksum_.add(last_);
    return call;
  }
}

bool Generator::needs_settling(const Call& call) const {
  if (world_.pending == nothing_pending) return false;
  switch (call.operation->order) {
    case Order::any:
      return false;
    case Order::all_done:
      return true;
    case Order::by_legacy:
      return world_.pending != legacy_stream_pending;
    case Order::by_stream:  // which a capture takes, or which then only joins it
      return !world_.captures() && world_.pending != call[0];
  }
  return true;
}

void Generator::answered(CUresult code) {
  try {
    follow(code);
  } catch (const std::exception&) {  // of a container: no such handle, device or size
    left_ = 0;
  }
  if (!is_sound(world_)) left_ = 0;
}

void Generator::follow(CUresult code) {
  if (code == CUDA_SUCCESS && last_.operation->succeeded != nullptr) last_.operation->succeeded(last_, world_);
  follow_work(last_, code);
  if (last_.operation->ended != nullptr) last_.operation->ended(last_, world_);
}

// Refused calls put no work on a stream.
void Generator::follow_work(const Call& call, CUresult code) {
  if (code != CUDA_SUCCESS) return;
  if (call.operation->order == Order::by_legacy) world_.pending = legacy_stream_pending;
  if (call.operation->order == Order::by_stream && !world_.captures()) world_.pending = static_cast<int>(call[0]);
}

}  // namespace cuvmm::conformance
