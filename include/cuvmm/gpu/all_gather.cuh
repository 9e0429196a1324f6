// All-gather: every rank gets the bytes of all ranks, one behind the other in the order of ranks.
#pragma once

#include "cuvmm/gpu/byte_copy.cuh"

namespace cuvmm::gpu {

// The arguments of one rank. Outputs have room for `bytes` of every rank. In place means that the input is the rank's
// own part of its output.
struct AllGather {
  Team team;
  std::uint64_t bytes;                    // of one rank
  const std::uint8_t* inputs[max_ranks];  // of rank r as seen from this one
  std::uint8_t* outputs[max_ranks];       // likewise; by unicast only outputs[rank] is used
  std::uint8_t* multicast_output;         // the same memory at the multicast address; null without multicast
};

// Every rank reads the inputs of all, beginning with its own, so that not all read one rank's at the same time.
template <class Memory, class Block>
CUVMM_DEVICE inline void all_gather(const Memory& memory, const Block& block, const AllGather& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost() || !team.meet()) return;
  for (std::uint32_t step = 0; step < call.team.ranks; ++step) {
    const std::uint32_t from = (call.team.rank + step) % call.team.ranks;
    detail::copy_bytes(memory, block, call.outputs[call.team.rank] + from * call.bytes, call.inputs[from], call.bytes);
  }
  if (team.meet()) team.finish();
}

// Every rank writes its own part to all at once.
template <class Memory, class Block>
CUVMM_DEVICE inline void multimem_all_gather(const Memory& memory, const Block& block, const AllGather& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost() || !team.meet_by_multicast()) return;
  detail::copy_bytes_to_all(memory, block, call.team.ranks, call.outputs, call.multicast_output,
                            call.team.rank * call.bytes, call.inputs[call.team.rank], call.bytes);
  if (team.meet_by_multicast()) team.finish();
}

}  // namespace cuvmm::gpu
