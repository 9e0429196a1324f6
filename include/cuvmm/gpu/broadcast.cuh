// Broadcast: every rank gets the bytes that one of them, the root, has.
#pragma once

#include "cuvmm/gpu/byte_copy.cuh"

namespace cuvmm::gpu {

// The arguments of one rank. Addresses are aligned as they like; bytes move 16 at once where the root's input and the
// output are aligned alike modulo 16 bytes. In place, where the root's input is its output, is fine.
struct Broadcast {
  Team team;
  std::uint32_t root;
  std::uint64_t bytes;
  const std::uint8_t* input;         // the root's, as seen from this rank
  std::uint8_t* outputs[max_ranks];  // of rank r as seen from this one; by unicast only outputs[rank] is used
  std::uint8_t* multicast_output;    // the same memory at the multicast address; null without multicast
};

// Every rank reads the root's input.
template <class Memory, class Block>
CUVMM_DEVICE inline void broadcast(const Memory& memory, const Block& block, const Broadcast& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost() || !team.meet()) return;
  detail::copy_bytes(memory, block, call.outputs[call.team.rank], call.input, call.bytes);
  if (team.meet()) team.finish();
}

// The root writes to all ranks at once.
template <class Memory, class Block>
CUVMM_DEVICE inline void multimem_broadcast(const Memory& memory, const Block& block, const Broadcast& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  if (team.is_lost() || !team.meet_by_multicast()) return;
  if (call.team.rank == call.root)
    detail::copy_bytes_to_all(memory, block, call.team.ranks, call.outputs, call.multicast_output, 0, call.input,
                              call.bytes);
  if (team.meet_by_multicast()) team.finish();
}

}  // namespace cuvmm::gpu
