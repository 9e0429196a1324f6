// The multicast objects of a machine that is the process's own.
#include <algorithm>
#include <cstring>

#include "emulator/memory/private_memory.hpp"

namespace cuvmm::emulator::memory {

using model::Allocation;

std::uint64_t PrivateMemory::take_multicast(std::uint32_t devices, std::uint64_t, const abi::CUmemAllocationProp&) {
  teams_.add(next_id_, devices);
  return next_id_++;
}

model::MulticastState PrivateMemory::multicast_state(const Allocation& object) {
  return {teams_.team(object.id), teams_.missing(object.id), false, devices_};
}

model::JoinOutcome PrivateMemory::join_multicast(const Allocation& object, int device) {
  return teams_.join(object.id, {0, device});
}

// What is bound keeps its memory.
model::BindOutcome PrivateMemory::bind_multicast(const Allocation& object, int device, std::uint64_t offset,
                                                 std::uint64_t bytes, Allocation& memory, std::uint64_t memory_offset) {
  const auto outcome = teams_.bind(object.id, {{0, device}, offset, bytes, memory.id, memory_offset});
  if (outcome == model::BindOutcome::bound) store().add_reference(memory);
  return outcome;
}

void PrivateMemory::let_go(std::uint64_t memory) noexcept {
  if (Allocation* const known = store().find(memory); known != nullptr) store().drop_reference(*known);
}

bool PrivateMemory::unbind_multicast(const Allocation& object, int device, std::uint64_t offset, std::uint64_t bytes,
                                     std::uint64_t* memory) {
  const auto gone = teams_.unbind(object.id, {0, device}, offset, bytes);
  if (!gone) return false;
  *memory = gone->memory;
  let_go(gone->memory);
  return true;
}

void PrivateMemory::end_multicast(const Allocation& object) noexcept {
  exported_.erase(object.id);
  teams_.remove(object.id, [this](const model::MulticastBinding& each) {
    if (Allocation* const known = store().find(each.memory); known != nullptr && known->binds > 0) --known->binds;
    let_go(each.memory);
  });
}

std::vector<MulticastPiece> PrivateMemory::multicast_pieces(const Allocation& object, std::uint64_t offset,
                                                            std::uint64_t bytes) {
  const std::vector<model::TeamDevice>& team = teams_.team(object.id);
  std::vector<MulticastPiece> pieces;
  for (const model::MulticastBinding& bound : teams_.bound_in(object.id, offset, bytes)) {
    MulticastPiece piece;
    piece.member = static_cast<std::size_t>(std::find(team.begin(), team.end(), bound.device) - team.begin());
    piece.offset = std::max(bound.offset, offset);
    piece.bytes = std::min(bound.offset + bound.bytes, offset + bytes) - piece.offset;
    piece.extent = extent(*store().find(bound.memory));
    piece.extent.offset += bound.memory_offset + piece.offset - bound.offset;
    pieces.push_back(piece);
  }
  return pieces;
}

}  // namespace cuvmm::emulator::memory
