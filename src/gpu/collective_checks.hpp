// What a collective's arguments must be, checked before a launch: a kernel has no way to say what is wrong with them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cuvmm/error.hpp"
#include "cuvmm/gpu/all_gather.cuh"
#include "cuvmm/gpu/all_reduce.cuh"
#include "cuvmm/gpu/broadcast.cuh"
#include "cuvmm/gpu/flagged_all_reduce.cuh"
#include "cuvmm/gpu/staged_all_reduce.cuh"
#include "gpu/collective_image.hpp"

namespace cuvmm::gpu {

// How many blocks and threads a call is launched with.
struct CollectiveShape {
  unsigned blocks;
  unsigned threads;
};

namespace detail {

// An all-reduce without its type.
struct AnyAllReduce {
  const Team* team;
  std::uint64_t count;
  std::uint64_t element_bytes;
  std::uint64_t most;  // values that the way can take
  std::span<const std::uintptr_t> inputs;
  std::span<const std::uintptr_t> outputs;
  std::uintptr_t multicast_input;
  std::uintptr_t multicast_output;
};

[[nodiscard]] std::optional<Failure> refusal_of(const AnyAllReduce& call, AllReduceWay way,
                                                const CollectiveShape& shape);

}  // namespace detail

// What is wrong with the arguments (InvalidUse, with the way out), or nothing. Touches no memory. Thread-safe.
[[nodiscard]] std::optional<Failure> refusal_of(const Broadcast& call, const CollectiveShape& shape, bool multicast);
[[nodiscard]] std::optional<Failure> refusal_of(const AllGather& call, const CollectiveShape& shape, bool multicast);

// The same of a kernel of that name, of whose arguments only what all have is looked at.
[[nodiscard]] std::optional<Failure> refusal_of(std::string_view kernel, const Team& team,
                                                const CollectiveShape& shape);

template <class T>
[[nodiscard]] std::optional<Failure> refusal_of(const AllReduce<T>& call, AllReduceWay way,
                                                const CollectiveShape& shape) {
  std::uintptr_t inputs[max_ranks];
  std::uintptr_t outputs[max_ranks];
  for (std::uint32_t rank = 0; rank < max_ranks; ++rank) {
    inputs[rank] = detail::bits_of(call.inputs[rank]);
    outputs[rank] = detail::bits_of(call.outputs[rank]);
  }
  std::uint64_t most = ~std::uint64_t{0};
  if (way == AllReduceWay::flagged)
    most = shape.threads == 0 ? 0 : flagged_capacity<T>(shape.blocks, call.team.lines_per_block, shape.threads);
  if (way == AllReduceWay::staged_one_shot) most = staged_capacity<T>(call.team.staging_packs);
  return detail::refusal_of({&call.team, call.count, sizeof(T), most, inputs, outputs,
                             detail::bits_of(call.multicast_input), detail::bits_of(call.multicast_output)},
                            way, shape);
}

}  // namespace cuvmm::gpu
