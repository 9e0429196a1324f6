// What all collectives share: who takes part, and the memory by which they meet. Passed to kernels by value.
//
// A call is made by all ranks, in the same order on all, each time with the same arguments but for those that name the
// rank, and launched with the same number of blocks and of threads. All blocks of a rank must be able to run at once
// (at most one for each multiprocessor is always right). A rank's calls follow one another in one stream, or are
// otherwise ordered: two at once use the same counters.
//
// Everything that changes from call to call is kept in device memory and moved on by the kernels themselves, so a call
// that was captured into a graph can be replayed any number of times, also between others that were not captured.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuvmm/gpu/epoch_barrier.cuh"
#include "cuvmm/gpu/memory_policy.cuh"

namespace cuvmm::gpu {

// What one block of one rank remembers between calls. In memory of the rank's own, zeros before the first call.
struct alignas(16) BlockState {
  std::uint32_t barrier_epoch;  // the last one that it arrived at
  std::uint32_t line_epoch;     // the last exchange of flagged lines
  // Ranks that did not come in time, bit r for rank r. Once it is not 0 every further call returns at once and has done
  // nothing: the team has to be made anew.
  std::uint32_t missing;
  std::uint32_t staging_epoch;  // how often the staging buffers were used; the same in all blocks
};

struct Team {
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint64_t time_limit;  // nanoseconds that a wait for another rank lasts at most

  BlockState* states;    // this rank's, one for each block
  std::uint32_t blocks;  // how many there are; a call has that many at most

  // One for each block, in every rank's memory, as seen from this rank; zeros before the first call.
  Arrivals* arrivals[max_ranks];
  Arrivals* multicast_arrivals;  // the same at the multicast address; null without multicast

  // Lines by which small content is exchanged, in every rank's memory, as seen from this rank; zeros before the first
  // call. `lines_per_block` for each of 2 buffers, for each rank, for each block: see line_count().
  Line* lines[max_ranks];
  std::uint32_t lines_per_block;

  // Buffers into which ranks write what others are to add up, in every rank's memory, as seen from this rank:
  // `staging_packs` for each of 2 buffers, for each other rank: see staging_count().
  Pack* staging[max_ranks];
  std::uint64_t staging_packs;
};

// How many lines each rank provides.
[[nodiscard]] CUVMM_HOST_DEVICE constexpr std::size_t line_count(std::uint32_t ranks, std::uint32_t blocks,
                                                                 std::uint32_t lines_per_block) noexcept {
  return std::size_t{2} * ranks * blocks * lines_per_block;
}

// How many packs of staging buffers each rank provides.
[[nodiscard]] CUVMM_HOST_DEVICE constexpr std::size_t staging_count(std::uint32_t ranks,
                                                                    std::uint64_t staging_packs) noexcept {
  return std::size_t{2} * (ranks - 1) * staging_packs;
}
// Which part of the buffers of rank `in` is for what rank `from` writes, another one.
[[nodiscard]] CUVMM_HOST_DEVICE constexpr std::uint32_t staging_slot(std::uint32_t in, std::uint32_t from) noexcept {
  return from < in ? from : from - 1;
}

// One block's part in one call.
template <class Memory, class Block>
class TeamCall {
 public:
  CUVMM_DEVICE TeamCall(const Memory& memory, const Block& block, const Team& team)
      : memory_(memory), block_(block), team_(team) {
    const auto* const state = reinterpret_cast<const Pack*>(&team.states[block.index()]);
    state_ = bits_as<BlockState>(memory.load_volatile(state));
  }

  // Whether an earlier call was given up. Asked first: the same answer for all threads of the block.
  [[nodiscard]] CUVMM_DEVICE bool is_lost() const { return state_.missing != 0; }

  // Meets the blocks of the same index of all other ranks. False if one did not come: the call has to return.
  [[nodiscard]] CUVMM_DEVICE bool meet() {
    return barrier(nullptr).meet(block_, ++state_.barrier_epoch, team_.time_limit, missing());
  }
  // The same where content moves through the multicast address.
  [[nodiscard]] CUVMM_DEVICE bool meet_by_multicast() {
    return barrier(team_.multicast_arrivals)
        .meet_by_multicast(block_, ++state_.barrier_epoch, team_.time_limit, missing());
  }

  // The buffer of rank `in` whose turn it is.
  [[nodiscard]] CUVMM_DEVICE Pack* staging(std::uint32_t in) const {
    const std::uint64_t buffer_packs = (team_.ranks - 1) * team_.staging_packs;
    return team_.staging[in] + (state_.staging_epoch & 1) * buffer_packs;
  }
  CUVMM_DEVICE void use_other_staging_buffer() { ++state_.staging_epoch; }

  // The epoch of an exchange of lines.
  [[nodiscard]] CUVMM_DEVICE std::uint32_t next_line_epoch() { return ++state_.line_epoch; }

  CUVMM_DEVICE void give_up_on(std::uint32_t peer) const { memory_.fetch_or(missing(), std::uint32_t{1} << peer); }

  // The end of a call: the next one goes on from here.
  CUVMM_DEVICE void finish() const {
    block_.synchronize();  // all threads have read the state
    if (block_.thread() != 0) return;
    memory_.store(&team_.states[block_.index()].barrier_epoch, state_.barrier_epoch);
    memory_.store(&team_.states[block_.index()].line_epoch, state_.line_epoch);
  }
  // The same of a call that used staging buffers: they take turns for the whole rank, so that blocks which this call
  // does without have to know, too.
  CUVMM_DEVICE void finish_staging() const {
    finish();
    const std::uint32_t stride = block_.index() == 0 ? block_.threads() : team_.blocks;
    const std::uint32_t first = block_.index() == 0 ? block_.count() + block_.thread() : team_.blocks;
    for (std::uint32_t other = first; other < team_.blocks; other += stride)
      memory_.store(&team_.states[other].staging_epoch, state_.staging_epoch);
    if (block_.thread() == 0) memory_.store(&team_.states[block_.index()].staging_epoch, state_.staging_epoch);
  }

 private:
  [[nodiscard]] CUVMM_DEVICE EpochBarrier<Memory> barrier(Arrivals* multicast) const {
    return {memory_, team_.arrivals, block_.index(), multicast, team_.rank, team_.ranks};
  }
  [[nodiscard]] CUVMM_DEVICE std::uint32_t* missing() const { return &team_.states[block_.index()].missing; }

  const Memory& memory_;
  const Block& block_;
  const Team& team_;
  BlockState state_;
};

// Part `index` of `parts` of `total` things: from begin to end, as equal as can be.
struct Part {
  std::uint64_t begin;
  std::uint64_t end;
};
[[nodiscard]] CUVMM_HOST_DEVICE constexpr Part part_of(std::uint64_t total, std::uint32_t index,
                                                       std::uint32_t parts) noexcept {
  const std::uint64_t each = total / parts;
  const std::uint64_t more = total % parts;  // the first ones have one more
  const std::uint64_t begin = each * index + (index < more ? index : more);
  return {begin, begin + each + (index < more ? 1 : 0)};
}

// How content at two addresses divides into elements up to the first multiple of 16 bytes, packs, and elements that are
// left. Where the addresses are differently aligned there are no packs.
struct Division {
  std::uint64_t head;  // elements
  std::uint64_t packs;
  std::uint64_t tail;  // elements

  [[nodiscard]] CUVMM_HOST_DEVICE constexpr std::uint64_t singles() const noexcept { return head + tail; }
};
template <class T>
[[nodiscard]] CUVMM_HOST_DEVICE inline Division divide(const T* one, const T* other, std::uint64_t count) noexcept {
  constexpr std::uint64_t elements = sizeof(Pack) / sizeof(T);
  const auto offset = reinterpret_cast<std::uintptr_t>(one) % sizeof(Pack);
  if (reinterpret_cast<std::uintptr_t>(other) % sizeof(Pack) != offset) return {count, 0, 0};
  const std::uint64_t until_aligned = (sizeof(Pack) - offset) % sizeof(Pack) / sizeof(T);
  const std::uint64_t head = until_aligned < count ? until_aligned : count;
  const std::uint64_t packs = (count - head) / elements;
  return {head, packs, count - head - packs * elements};
}

// The elements outside of packs, numbered: those of the head, then those of the tail.
template <class T>
[[nodiscard]] CUVMM_HOST_DEVICE constexpr std::uint64_t single_index(const Division& division,
                                                                     std::uint64_t single) noexcept {
  return single < division.head ? single : single + division.packs * (sizeof(Pack) / sizeof(T));
}

// Calls `work` for every index in the part that falls to the calling thread, the grid's threads taking turns.
template <class Block, class Work>
CUVMM_DEVICE inline void for_each_index(const Block& block, const Part& part, Work work) {
  const std::uint64_t stride = std::uint64_t{block.count()} * block.threads();
  for (std::uint64_t i = part.begin + std::uint64_t{block.index()} * block.threads() + block.thread(); i < part.end;
       i += stride)
    work(i);
}

// The same with `at_once` indexes in a call, so that their loads are under way together. They are batch.index(0) and so
// on; of the last ones some may be beyond the end, which `batch.holds` tells.
template <bool is_full>
struct Batch {
  std::uint64_t first;
  std::uint64_t stride;
  std::uint64_t end;

  [[nodiscard]] CUVMM_HOST_DEVICE constexpr std::uint64_t index(int which) const noexcept {
    return first + static_cast<std::uint64_t>(which) * stride;
  }
  [[nodiscard]] CUVMM_HOST_DEVICE constexpr bool holds(int which) const noexcept {
    return is_full || index(which) < end;
  }
};
template <int at_once, class Block, class Work>
CUVMM_DEVICE inline void for_each_batch(const Block& block, const Part& part, Work work) {
  const std::uint64_t stride = std::uint64_t{block.count()} * block.threads();
  std::uint64_t i = part.begin + std::uint64_t{block.index()} * block.threads() + block.thread();
  for (; i + (at_once - 1) * stride < part.end; i += at_once * stride) work(Batch<true>{i, stride, part.end});
  if (i < part.end) work(Batch<false>{i, stride, part.end});
}

}  // namespace cuvmm::gpu
