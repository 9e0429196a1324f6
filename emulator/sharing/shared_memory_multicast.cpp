// Multicast objects of a machine that processes share: the broker has them.
#include <algorithm>

#include "emulator/sharing/replies.hpp"
#include "emulator/sharing/shared_memory.hpp"

namespace cuvmm::emulator::sharing {
namespace {

// Why the broker would not; nothing if it did.
template <class Outcome>
std::optional<Outcome> why_not(const broker::Reply& reply) {
  if (is(reply, broker::Refusal::multicast)) return static_cast<Outcome>(std::get<broker::Refused>(reply).detail);
  (void)expect<broker::Done>(reply);
  return std::nullopt;
}

}  // namespace

std::uint64_t SharedMemory::take_multicast(std::uint32_t devices, std::uint64_t bytes,
                                           const abi::CUmemAllocationProp& properties) {
  settle();
  auto note = make_note();
  const broker::Reply reply = connection_->ask(broker::CreateMulticast{devices, bytes, broker::Properties(properties)});
  const broker::SharedAllocation& made = expect<broker::Memory>(reply).allocation;
  keep(std::move(note), made);
  return made.id;
}

model::MulticastState SharedMemory::multicast_state(const model::Allocation& object) {
  const broker::Reply reply = connection_->ask(broker::AskMulticast{object.id, 0, 0, 0});
  const auto& facts = expect<broker::Multicast>(reply);
  model::MulticastState state;
  state.missing = facts.missing;
  state.others = facts.others;
  state.devices_in_reach = facts.in_reach;
  for (std::size_t at = 0; at + 1 < facts.team.size(); at += 2)
    state.team.push_back({static_cast<int>(facts.team[at]), static_cast<int>(facts.team[at + 1])});
  return state;
}

model::JoinOutcome SharedMemory::join_multicast(const model::Allocation& object, int device) {
  return why_not<model::JoinOutcome>(connection_->ask(broker::JoinMulticast{object.id, device}))
      .value_or(model::JoinOutcome::joined);
}

model::BindOutcome SharedMemory::bind_multicast(const model::Allocation& object, int device, std::uint64_t offset,
                                                std::uint64_t bytes, model::Allocation& memory,
                                                std::uint64_t memory_offset) {
  const broker::BindMulticast request{object.id, device, offset, bytes, memory.id, memory_offset};
  return why_not<model::BindOutcome>(connection_->ask(request)).value_or(model::BindOutcome::bound);
}

bool SharedMemory::unbind_multicast(const model::Allocation& object, int device, std::uint64_t offset,
                                    std::uint64_t bytes, std::uint64_t* memory) {
  const broker::Reply reply = connection_->ask(broker::UnbindMulticast{object.id, device, offset, bytes});
  if (is(reply, broker::Refusal::not_known)) return false;
  *memory = expect<broker::Token>(reply).token;
  return true;
}

bool SharedMemory::is_bound(const model::Allocation& memory) {
  return expect<broker::Token>(connection_->ask(broker::AskBound{memory.id})).token != 0;
}

std::vector<memory::MulticastPiece> SharedMemory::multicast_pieces(const model::Allocation& object,
                                                                   std::uint64_t offset, std::uint64_t bytes) {
  std::vector<memory::MulticastPiece> pieces;
  constexpr std::size_t fields = broker::Multicast::fields_of_bind;
  for (std::uint64_t told = 0; true;) {
    const broker::Reply reply = connection_->ask(broker::AskMulticast{object.id, offset, bytes, told});
    const auto& facts = expect<broker::Multicast>(reply);
    for (std::size_t at = 0; at + fields <= facts.binds.size(); at += fields, ++told) {
      const std::uint64_t* const bind = facts.binds.data() + at;
      memory::MulticastPiece piece;
      piece.member = static_cast<std::size_t>(bind[0]);
      piece.offset = std::max(bind[1], offset);
      piece.bytes = std::min(bind[1] + bind[2], offset + bytes) - piece.offset;
      const broker::NodePlace place(static_cast<int>(bind[3]), model::Place::on_device(static_cast<int>(bind[4])));
      piece.extent = {&file(place), bind[5] + piece.offset - bind[1]};
      pieces.push_back(piece);
    }
    if (!facts.more || facts.binds.empty()) return pieces;
  }
}

}  // namespace cuvmm::emulator::sharing
