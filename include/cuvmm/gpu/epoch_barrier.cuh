// A barrier between ranks that share memory: a counter for each rank that only ever grows.
//
// Each rank has, in memory that all ranks reach, one counter for each other rank. To arrive at epoch e is to set one's
// own counter in every other rank's memory to e; to wait is to look, in one's own memory, until every counter is at
// least e. Nothing is ever set back, so a rank that is fast and already arrives at e + 1 releases nobody too early, and
// keeps nobody waiting: its counter still is at least e.
//
// Counters are compared by the sign of their difference, which survives that 32 bits run over: a rank cannot arrive
// at e + 2 before all have arrived at e + 1, that is, left e. So counters differ by one at most, far less than the 2^31
// up to which the sign is right.
#pragma once

#include <cstdint>

#include "cuvmm/gpu/host_device.cuh"
#include "cuvmm/gpu/memory_policy.cuh"

namespace cuvmm::gpu {

inline constexpr std::uint32_t max_ranks = 32;

// The counters of one barrier, in one rank's memory: of[r] is what rank r has arrived at. Zeros before the first use.
// A line of the cache of its own for each, since many ranks write to it while one reads.
struct alignas(128) Arrivals {
  std::uint32_t of[max_ranks];
};

// Whether a counter has come to an epoch, also where it ran over in between.
[[nodiscard]] CUVMM_HOST_DEVICE constexpr bool has_reached(std::uint32_t counter, std::uint32_t epoch) noexcept {
  return static_cast<std::int32_t>(counter - epoch) >= 0;
}

// The end of a wait. The clock is looked at now and then only.
class Deadline {
 public:
  // `limit` in nanoseconds from the first look at the clock.
  CUVMM_DEVICE explicit Deadline(std::uint64_t limit) noexcept : limit_(limit) {}

  // To be called after each look that was in vain.
  template <class Memory>
  [[nodiscard]] CUVMM_DEVICE bool has_passed(const Memory& memory) {
    memory.pause();
    if (++looks_ % looks_between != 0) return false;
    const std::uint64_t now = memory.nanoseconds();
    if (looks_ == looks_between) begin_ = now;
    return now - begin_ > limit_;
  }

 private:
  static constexpr std::uint64_t looks_between = 64;
  std::uint64_t limit_;
  std::uint64_t looks_ = 0;
  std::uint64_t begin_ = 0;
};

// One barrier as one rank sees it. All ranks must use the same one in the same order of epochs, each epoch one more
// than the last; who keeps the epoch also decides how it starts (zeros, unless all counters are set otherwise).
template <class Memory>
class EpochBarrier {
 public:
  // `arrivals[r]`: the counters in the memory of rank r, as seen from here. `multicast`: the same counters of all ranks
  // at once, or null.
  CUVMM_DEVICE EpochBarrier(const Memory& memory, Arrivals* const* arrivals, std::uint32_t slot, Arrivals* multicast,
                            std::uint32_t rank, std::uint32_t ranks) noexcept
      : memory_(memory), arrivals_(arrivals), slot_(slot), multicast_(multicast), rank_(rank), ranks_(ranks) {}

  // Tells one other rank that this one has arrived. Release at system scope: whoever sees it also sees what this
  // thread, and those that it has met in its block, did before.
  CUVMM_DEVICE void signal(std::uint32_t peer, std::uint32_t epoch) const {
    memory_.store_release(&arrivals_[peer][slot_].of[rank_], epoch);
  }
  // Tells all ranks in one access. The counters grow by one, that is, from one epoch to the next.
  CUVMM_DEVICE void signal_all() const {
    memory_.template multimem_reduce<Operation::add, Order::release, Scope::system>(&multicast_[slot_].of[rank_], 1U);
    memory_.alias_fence();  // the waiting that follows looks at the same counters through another address
  }
  // Whether that rank has arrived. Acquire at system scope.
  [[nodiscard]] CUVMM_DEVICE bool has_arrived(std::uint32_t peer, std::uint32_t epoch) const {
    return has_reached(memory_.load_acquire(&arrivals_[rank_][slot_].of[peer]), epoch);
  }

  // Arrives and waits, together with the other threads of the block, that all call this. Returns whether all ranks have
  // arrived; a rank that had not after `time_limit` nanoseconds is set in `*missing` (bit r for rank r).
  template <class Block>
  [[nodiscard]] CUVMM_DEVICE bool meet(const Block& block, std::uint32_t epoch, std::uint64_t time_limit,
                                       std::uint32_t* missing) const {
    block.synchronize();
    for (std::uint32_t peer = block.thread(); peer < ranks_; peer += block.threads())
      if (peer != rank_) signal(peer, epoch);
    return wait_for_all(block, epoch, time_limit, missing);
  }
  // The same with one access that tells all. What a thread did through the multicast address has to be ordered by
  // itself, before it meets the one that tells, and what it does there behind the barrier likewise.
  template <class Block>
  [[nodiscard]] CUVMM_DEVICE bool meet_by_multicast(const Block& block, std::uint32_t epoch, std::uint64_t time_limit,
                                                    std::uint32_t* missing) const {
    memory_.alias_fence();
    block.synchronize();
    if (block.thread() == 0) signal_all();
    const bool all_here = wait_for_all(block, epoch, time_limit, missing);
    memory_.alias_fence();
    return all_here;
  }

 private:
  template <class Block>
  CUVMM_DEVICE bool wait_for_all(const Block& block, std::uint32_t epoch, std::uint64_t time_limit,
                                 std::uint32_t* missing) const {
    bool late = false;
    for (std::uint32_t peer = block.thread(); peer < ranks_; peer += block.threads())
      if (peer != rank_ && !wait_for(peer, epoch, time_limit, missing)) late = true;
    return !block.any(late);
  }
  CUVMM_DEVICE bool wait_for(std::uint32_t peer, std::uint32_t epoch, std::uint64_t time_limit,
                             std::uint32_t* missing) const {
    Deadline deadline(time_limit);
    while (!has_arrived(peer, epoch)) {
      if (!deadline.has_passed(memory_)) continue;
      memory_.fetch_or(missing, std::uint32_t{1} << peer);
      return false;
    }
    return true;
  }

  const Memory& memory_;
  Arrivals* const* arrivals_;
  std::uint32_t slot_;
  Arrivals* multicast_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
};

}  // namespace cuvmm::gpu
