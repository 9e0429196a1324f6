#include "conformance/sequences/generator.hpp"

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
