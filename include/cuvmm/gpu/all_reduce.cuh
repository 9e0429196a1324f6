// All-reduce: every rank gets the sum of what all ranks have, by reading and writing each other's memory. Four ways,
// each written once for GPUs and CPUs (memory_policy.cuh); a fifth for small content is in flagged_all_reduce.cuh.
//
// | function                  | reads                        | writes                     | in place |
// | all_reduce_one_shot       | all of every rank's input    | the own output             | no       |
// | all_reduce_two_shot       | its part of every rank's     | its part of every output   | yes      |
// | all_reduce_multimem_one_shot | all, at the multicast address | the own output         | no       |
// | all_reduce_multimem_two_shot | its part, likewise        | its part, likewise         | yes      |
//
// All begin and end with a barrier: no rank reads before all are ready, none returns before all have read what the next
// kernel may overwrite and, of two shots, written what it may read. Two shots give the same bits on all ranks, since
// one rank adds and all get its sum; so does one shot by unicast, which adds in the order of ranks. What multimem
// one-shot gives may differ in the last bit of floating-point types.
#pragma once

#include "cuvmm/gpu/collective_team.cuh"
#include "cuvmm/gpu/summation.cuh"

namespace cuvmm::gpu {

// The arguments of one rank. Content is `count` values from each address, which is aligned as its type is; where inputs
// and outputs of the ranks are aligned alike modulo 16 bytes, which they are at the same offset of symmetric memory,
// content moves 16 bytes at once, else value by value. Of one shot only outputs[rank] is used. Values that multimem
// cannot access (those before the first and after the last multiple of 16 bytes) go by unicast.
template <class T>
struct AllReduce {
  Team team;
  const T* inputs[max_ranks];  // of rank r as seen from this one
  T* outputs[max_ranks];
  const T* multicast_input;  // the same memory at the multicast address; null without multicast
  T* multicast_output;
  std::uint64_t count;
};

namespace detail {

// Sums of a batch of packs that start at a multiple of 16 bytes behind each input. `ranks` is a constant where the
// compiler is to keep all loads under way at once.
template <int known_ranks, int at_once, class T, class Memory, class BatchType>
CUVMM_DEVICE inline void sum_packs(const Memory& memory, const AllReduce<T>& call, std::uint64_t head,
                                   const BatchType& batch, Pack (&sums)[at_once]) {
  const auto packs_of = [&](std::uint32_t rank) { return reinterpret_cast<const Pack*>(call.inputs[rank] + head); };
  if constexpr (known_ranks == 2) {
    Pack others[at_once];
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) others[i] = memory.load(packs_of(1 - call.team.rank) + batch.index(i));
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) sums[i] = memory.load(packs_of(call.team.rank) + batch.index(i));
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i) {
      if (!batch.holds(i)) continue;
      RunningSum<T> sum;   // NOLINT(*-member-init): started by the first value
      sum.start(sums[i]);  // of two values the order makes no difference
      sum.add(others[i]);
      sums[i] = sum.result();
    }
  } else {
    RunningSum<T> running[at_once];
    for (std::uint32_t rank = 0; rank < call.team.ranks; ++rank) {
      CUVMM_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (batch.holds(i)) sums[i] = memory.load(packs_of(rank) + batch.index(i));
      CUVMM_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (batch.holds(i)) rank == 0 ? running[i].start(sums[i]) : running[i].add(sums[i]);
    }
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) sums[i] = running[i].result();
  }
}

template <class T, class Memory>
CUVMM_DEVICE inline T sum_single(const Memory& memory, const AllReduce<T>& call, std::uint64_t index) {
  auto sum = Summation<T>::widen(memory.load(call.inputs[0] + index));
  for (std::uint32_t rank = 1; rank < call.team.ranks; ++rank)
    sum += Summation<T>::widen(memory.load(call.inputs[rank] + index));
  return Summation<T>::narrow(sum);
}

// How many packs a thread has under way: of many ranks fewer, since sums of 16-bit values take twice the registers.
template <int known_ranks>
inline constexpr int packs_at_once = known_ranks == 2 ? 8 : 4;

template <int known_ranks, class T, class Memory, class Block>
CUVMM_DEVICE inline void one_shot(const Memory& memory, const Block& block, const AllReduce<T>& call) {
  T* const output = call.outputs[call.team.rank];
  const Division division = divide(call.inputs[call.team.rank], static_cast<const T*>(output), call.count);
  auto* const packs = reinterpret_cast<Pack*>(output + division.head);
  constexpr int at_once = packs_at_once<known_ranks>;
  for_each_batch<at_once>(block, {0, division.packs}, [&](const auto& batch) {
    Pack sums[at_once];
    sum_packs<known_ranks>(memory, call, division.head, batch, sums);
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) memory.store(packs + batch.index(i), sums[i]);
  });
  for_each_index(block, {0, division.singles()}, [&](std::uint64_t single) {
    const std::uint64_t index = single_index<T>(division, single);
    memory.store(output + index, sum_single(memory, call, index));
  });
}

template <int known_ranks, class T, class Memory, class Block>
CUVMM_DEVICE inline void two_shot(const Memory& memory, const Block& block, const AllReduce<T>& call) {
  const std::uint32_t rank = call.team.rank;
  const std::uint32_t ranks = known_ranks != 0 ? known_ranks : call.team.ranks;
  const Division division = divide(call.inputs[rank], static_cast<const T*>(call.outputs[rank]), call.count);
  constexpr int at_once = packs_at_once<known_ranks>;
  for_each_batch<at_once>(block, part_of(division.packs, rank, ranks), [&](const auto& batch) {
    Pack sums[at_once];
    sum_packs<known_ranks>(memory, call, division.head, batch, sums);
    for (std::uint32_t to = 0; to < ranks; ++to) {
      auto* const packs = reinterpret_cast<Pack*>(call.outputs[to] + division.head);
      CUVMM_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (batch.holds(i)) memory.store(packs + batch.index(i), sums[i]);
    }
  });
}

// The values of a two-shot that are outside of packs.
template <class T, class Memory, class Block>
CUVMM_DEVICE inline void two_shot_singles(const Memory& memory, const Block& block, const AllReduce<T>& call,
                                          const Division& division) {
  const Part part = part_of(division.singles(), call.team.rank, call.team.ranks);
  for_each_index(block, part, [&](std::uint64_t single) {
    const std::uint64_t index = single_index<T>(division, single);
    const T sum = sum_single(memory, call, index);
    for (std::uint32_t to = 0; to < call.team.ranks; ++to) memory.store(call.outputs[to] + index, sum);
  });
}

}  // namespace detail

template <class T, class Memory, class Block>
CUVMM_DEVICE inline void all_reduce_one_shot(const Memory& memory, const Block& block, const AllReduce<T>& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost() || !team.meet()) return;
  if (call.team.ranks == 2)
    detail::one_shot<2>(memory, block, call);
  else
    detail::one_shot<0>(memory, block, call);
  if (team.meet()) team.finish();
}

template <class T, class Memory, class Block>
CUVMM_DEVICE inline void all_reduce_two_shot(const Memory& memory, const Block& block, const AllReduce<T>& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost() || !team.meet()) return;
  if (call.team.ranks == 2)
    detail::two_shot<2>(memory, block, call);
  else
    detail::two_shot<0>(memory, block, call);
  const std::uint32_t rank = call.team.rank;
  detail::two_shot_singles(memory, block, call,
                           divide(call.inputs[rank], static_cast<const T*>(call.outputs[rank]), call.count));
  if (team.meet()) team.finish();
}

template <class T, class Memory, class Block>
CUVMM_DEVICE inline void all_reduce_multimem_one_shot(const Memory& memory, const Block& block,
                                                      const AllReduce<T>& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost() || !team.meet_by_multicast()) return;
  T* const output = call.outputs[call.team.rank];
  const Division division = divide(call.inputs[call.team.rank], static_cast<const T*>(output), call.count);
  const auto* const from = reinterpret_cast<const Pack*>(call.multicast_input + division.head);
  auto* const to = reinterpret_cast<Pack*>(output + division.head);
  constexpr int at_once = detail::packs_at_once<2>;
  for_each_batch<at_once>(block, {0, division.packs}, [&](const auto& batch) {
    Pack sums[at_once];
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) sums[i] = multimem_sum<T>(memory, from + batch.index(i));
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) memory.store(to + batch.index(i), sums[i]);
  });
  for_each_index(block, {0, division.singles()}, [&](std::uint64_t single) {
    const std::uint64_t index = single_index<T>(division, single);
    memory.store(output + index, detail::sum_single(memory, call, index));
  });
  if (team.meet_by_multicast()) team.finish();
}

template <class T, class Memory, class Block>
CUVMM_DEVICE inline void all_reduce_multimem_two_shot(const Memory& memory, const Block& block,
                                                      const AllReduce<T>& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost() || !team.meet_by_multicast()) return;
  const std::uint32_t rank = call.team.rank;
  const Division division = divide(call.inputs[rank], static_cast<const T*>(call.outputs[rank]), call.count);
  const auto* const from = reinterpret_cast<const Pack*>(call.multicast_input + division.head);
  auto* const to = reinterpret_cast<Pack*>(call.multicast_output + division.head);
  constexpr int at_once = detail::packs_at_once<2>;
  for_each_batch<at_once>(block, part_of(division.packs, rank, call.team.ranks), [&](const auto& batch) {
    Pack sums[at_once];
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) sums[i] = multimem_sum<T>(memory, from + batch.index(i));
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) multimem_write(memory, to + batch.index(i), sums[i]);
  });
  detail::two_shot_singles(memory, block, call, division);
  if (team.meet_by_multicast()) team.finish();
}

}  // namespace cuvmm::gpu
