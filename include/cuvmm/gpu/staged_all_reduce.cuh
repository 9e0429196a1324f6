// All-reduce by writing alone: ranks put what others are to add into buffers in the others' memory, so that nobody
// waits for the answer to a read, and links carry content without the requests for it.
//
// | function                    | writes to others                         | barriers             | in place |
// | all_reduce_staged_one_shot  | all of its input to every rank's buffer  | one                  | yes      |
// | all_reduce_staged_two_shot  | to each rank that rank's part; its sums  | one a round, and one | yes      |
//
// There are two buffers, which take turns. A rank writes to a buffer when it has met the others since the use before
// the last, that is, when they have come to the last use: they read what was in that buffer before they came. Between
// calls that follows as well from kernels following one another: who has come to a call is done with the one before.
// The same block, of every rank, writes, reads and answers the same packs, so that blocks need only meet their like.
//
// Results are the same bits on all ranks: each adds in the order of ranks.
#pragma once

#include "cuvmm/gpu/all_reduce.cuh"

namespace cuvmm::gpu {

// How many values a staged one-shot has at most. Two shots are done in rounds, and have no limit.
template <class T>
[[nodiscard]] CUVMM_HOST_DEVICE constexpr std::uint64_t staged_capacity(std::uint64_t staging_packs) noexcept {
  return staging_packs * (sizeof(Pack) / sizeof(T));
}

namespace detail {

// Content in packs, counted from its first value whatever its alignment; the last one may be filled up with zeros.
template <class T>
struct PackedContent {
  static constexpr std::uint64_t width = sizeof(Pack) / sizeof(T);

  std::uint64_t count;  // values

  [[nodiscard]] CUVMM_HOST_DEVICE constexpr std::uint64_t packs() const noexcept { return (count + width - 1) / width; }

  // How many of the packs of a part, from its first one on, can be accessed as such at all these addresses.
  [[nodiscard]] CUVMM_HOST_DEVICE std::uint64_t whole_packs(const Part& part, std::uintptr_t addresses) const noexcept {
    const std::uint64_t whole = addresses % sizeof(Pack) == 0 ? count / width : 0;
    return whole <= part.begin ? 0 : (whole < part.end ? whole : part.end) - part.begin;
  }
  template <class Memory>
  [[nodiscard]] CUVMM_DEVICE Pack load(const Memory& memory, const T* values, std::uint64_t pack) const {
    return load_raw<Pack>(memory, values + pack * width, count - pack * width);
  }
  template <class Memory>
  CUVMM_DEVICE void store(const Memory& memory, T* values, std::uint64_t pack, const Pack& content) const {
    store_raw(memory, values + pack * width, count - pack * width, content);
  }
};

[[nodiscard]] CUVMM_HOST_DEVICE inline std::uintptr_t bits_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

// The indexes from `begin` on that for_each_batch would give this thread in a part that begins at 0: which thread has
// which pack must not depend on what is fast here.
template <class Block, class Work>
CUVMM_DEVICE inline void for_each_index_behind(const Block& block, std::uint64_t begin, std::uint64_t end, Work work) {
  if (begin >= end) return;
  const std::uint64_t stride = std::uint64_t{block.count()} * block.threads();
  std::uint64_t i = std::uint64_t{block.index()} * block.threads() + block.thread();
  if (i < begin) i += (begin - i + stride - 1) / stride * stride;
  for (; i < end; i += stride) work(i);
}

// Copies packs of this rank's input to a buffer of another rank.
template <int at_once, class T, class Memory, class Block>
CUVMM_DEVICE inline void stage(const Memory& memory, const Block& block, const AllReduce<T>& call, const Part& part,
                               Pack* buffer) {
  const PackedContent<T> content{call.count};
  const T* const input = call.inputs[call.team.rank];
  const std::uint64_t whole = content.whole_packs(part, bits_of(input));
  const auto* const from = reinterpret_cast<const Pack*>(input) + part.begin;
  for_each_batch<at_once>(block, {0, whole}, [&](const auto& batch) {
    Pack packs[at_once];
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) packs[i] = memory.load(from + batch.index(i));
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) memory.store(buffer + batch.index(i), packs[i]);
  });
  for_each_index_behind(block, whole, part.end - part.begin, [&](std::uint64_t i) {
    memory.store(buffer + i, content.load(memory, input, part.begin + i));
  });
}

// What has been staged for this rank, its own input, and where the sums go: ranks [first, last).
template <class T>
struct Delivery {
  const AllReduce<T>& call;
  const Pack* buffers;  // of rank 0 for this one; the next rank's follows
  Part part;
  std::uint32_t first;
  std::uint32_t last;

  [[nodiscard]] CUVMM_DEVICE const Pack* buffer(std::uint32_t from) const {
    return buffers + staging_slot(call.team.rank, from) * call.team.staging_packs;
  }
  // Bits that are 0 in the addresses of the input and of all outputs.
  [[nodiscard]] CUVMM_DEVICE std::uintptr_t addresses() const {
    std::uintptr_t bits = bits_of(call.inputs[call.team.rank]);
    for (std::uint32_t to = first; to < last; ++to) bits |= bits_of(call.outputs[to]);
    return bits;
  }
};

// The sums of one batch of whole packs.
template <int known_ranks, int at_once, class T, class Memory, class BatchType>
CUVMM_DEVICE inline void sum_staged(const Memory& memory, const Delivery<T>& delivery, const BatchType& batch,
                                    Pack (&sums)[at_once]) {
  const std::uint32_t rank = delivery.call.team.rank;
  const auto* const mine = reinterpret_cast<const Pack*>(delivery.call.inputs[rank]) + delivery.part.begin;
  if constexpr (known_ranks == 2) {
    const Pack* const buffer = delivery.buffer(1 - rank);
    Pack others[at_once];
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i) {
      if (!batch.holds(i)) continue;
      sums[i] = memory.load(mine + batch.index(i));
      others[i] = memory.load(buffer + batch.index(i));
    }
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
    for (std::uint32_t from = 0; from < delivery.call.team.ranks; ++from) {
      const Pack* const packs = from == rank ? mine : delivery.buffer(from);
      CUVMM_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (batch.holds(i)) sums[i] = memory.load(packs + batch.index(i));
      CUVMM_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (batch.holds(i)) from == 0 ? running[i].start(sums[i]) : running[i].add(sums[i]);
    }
    CUVMM_UNROLL
    for (int i = 0; i < at_once; ++i)
      if (batch.holds(i)) sums[i] = running[i].result();
  }
}

template <int known_ranks, class T, class Memory, class Block>
CUVMM_DEVICE inline void deliver(const Memory& memory, const Block& block, const Delivery<T>& delivery) {
  constexpr int at_once = known_ranks == 2 ? 4 : 2;
  const AllReduce<T>& call = delivery.call;
  const PackedContent<T> content{call.count};
  const std::uint64_t whole = content.whole_packs(delivery.part, delivery.addresses());
  for_each_batch<at_once>(block, {0, whole}, [&](const auto& batch) {
    Pack sums[at_once];
    sum_staged<known_ranks>(memory, delivery, batch, sums);
    for (std::uint32_t to = delivery.first; to < delivery.last; ++to) {
      auto* const output = reinterpret_cast<Pack*>(call.outputs[to]) + delivery.part.begin;
      CUVMM_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (batch.holds(i)) memory.store(output + batch.index(i), sums[i]);
    }
  });
  for_each_index_behind(block, whole, delivery.part.end - delivery.part.begin, [&](std::uint64_t i) {
    const std::uint32_t rank = call.team.rank;
    const Pack mine = content.load(memory, call.inputs[rank], delivery.part.begin + i);
    RunningSum<T> sum;  // NOLINT(*-member-init): started by the first value
    for (std::uint32_t from = 0; from < call.team.ranks; ++from) {
      const Pack pack = from == rank ? mine : memory.load(delivery.buffer(from) + i);
      from == 0 ? sum.start(pack) : sum.add(pack);
    }
    for (std::uint32_t to = delivery.first; to < delivery.last; ++to)
      content.store(memory, call.outputs[to], delivery.part.begin + i, sum.result());
  });
}

inline constexpr int staged_at_once = 4;

template <int known_ranks, class T, class Memory, class Block>
CUVMM_DEVICE inline void staged_one_shot(const Memory& memory, const Block& block, const AllReduce<T>& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost()) return;
  const std::uint32_t rank = call.team.rank;
  const Part all{0, PackedContent<T>{call.count}.packs()};
  team.use_other_staging_buffer();
  for (std::uint32_t to = 0; to < call.team.ranks; ++to)
    if (to != rank)
      stage<staged_at_once>(memory, block, call, all,
                            team.staging(to) + staging_slot(to, rank) * call.team.staging_packs);
  if (!team.meet()) return;
  deliver<known_ranks>(memory, block, Delivery<T>{call, team.staging(rank), all, rank, rank + 1});
  team.finish_staging();
}

// One round of part `part` of what each rank adds: as much as a buffer has room for.
CUVMM_HOST_DEVICE constexpr Part round_of(const Part& part, std::uint64_t round, std::uint64_t most) noexcept {
  const std::uint64_t begin = part.begin + round * most;
  const std::uint64_t end = begin + most;
  return {begin < part.end ? begin : part.end, end < part.end ? end : part.end};
}

template <int known_ranks, class T, class Memory, class Block>
CUVMM_DEVICE inline void staged_two_shot(const Memory& memory, const Block& block, const AllReduce<T>& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost()) return;
  const std::uint32_t rank = call.team.rank;
  const std::uint32_t ranks = call.team.ranks;
  const std::uint64_t packs = PackedContent<T>{call.count}.packs();
  const std::uint64_t most = call.team.staging_packs;
  const Part longest = part_of(packs, 0, ranks);  // as many rounds for everybody
  for (std::uint64_t round = 0; round * most < longest.end; ++round) {
    team.use_other_staging_buffer();
    for (std::uint32_t to = 0; to < ranks; ++to) {
      if (to == rank) continue;
      stage<staged_at_once>(memory, block, call, round_of(part_of(packs, to, ranks), round, most),
                            team.staging(to) + staging_slot(to, rank) * call.team.staging_packs);
    }
    if (!team.meet()) return;
    const Part mine = round_of(part_of(packs, rank, ranks), round, most);
    deliver<known_ranks>(memory, block, Delivery<T>{call, team.staging(rank), mine, 0, ranks});
  }
  if (team.meet()) team.finish_staging();
}

}  // namespace detail

// `count` is at most staged_capacity(). Inputs and outputs of other ranks are not used.
template <class T, class Memory, class Block>
CUVMM_DEVICE inline void all_reduce_staged_one_shot(const Memory& memory, const Block& block,
                                                    const AllReduce<T>& call) {
  if (call.team.ranks == 2)
    detail::staged_one_shot<2>(memory, block, call);
  else
    detail::staged_one_shot<0>(memory, block, call);
}

// Inputs of other ranks are not used.
template <class T, class Memory, class Block>
CUVMM_DEVICE inline void all_reduce_staged_two_shot(const Memory& memory, const Block& block,
                                                    const AllReduce<T>& call) {
  if (call.team.ranks == 2)
    detail::staged_two_shot<2>(memory, block, call);
  else
    detail::staged_two_shot<0>(memory, block, call);
}

}  // namespace cuvmm::gpu
