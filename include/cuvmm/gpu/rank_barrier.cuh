// A barrier between ranks as a kernel of its own: work that a rank gave to its stream before is done, and seen by all
// ranks, when what any rank gives to its stream afterwards begins.
#pragma once

#include "cuvmm/gpu/collective_team.cuh"

namespace cuvmm::gpu {

struct RankBarrier {
  Team team;
};

template <class Memory, class Block>
CUVMM_DEVICE inline void rank_barrier(const Memory& memory, const Block& block, const RankBarrier& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (!team.is_lost() && team.meet()) team.finish();
}

// The same with one access that tells all ranks.
template <class Memory, class Block>
CUVMM_DEVICE inline void multimem_rank_barrier(const Memory& memory, const Block& block, const RankBarrier& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (!team.is_lost() && team.meet_by_multicast()) team.finish();
}

}  // namespace cuvmm::gpu
