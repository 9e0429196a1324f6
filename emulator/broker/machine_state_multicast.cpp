// Multicast objects that processes share.
#include <algorithm>

#include "emulator/broker/machine_state.hpp"

namespace cuvmm::emulator::broker {

const SharedAllocation& MachineState::create_multicast(ClientId client, const CreateMulticast& wanted) {
  Client& creator = clients_.at(client);
  SharedAllocation made{
      next_allocation_++, NodePlace(creator.node, model::Place::of_multicast()), wanted.bytes, wanted.properties, 0,
      wanted.devices};
  teams_.add(made.id, made.devices);
  creator.holds.insert(made.id);
  return allocations_.emplace(made.id, Held{made, 1}).first->second.allocation;
}

void MachineState::end_multicast(std::map<std::uint64_t, Held>::iterator object) {
  const std::uint64_t id = object->first;
  if (const auto token = token_of_.extract({TokenKind::fabric, id}); !token.empty()) {
    tokens_.erase({TokenKind::fabric, token.mapped()});
    lost_multicasts_.emplace(token.mapped(), object->second.allocation);
  }
  allocations_.erase(object);
  teams_.remove(id, [this](const model::MulticastBinding& bound) { drop(bound.memory); });
}

bool MachineState::is_lost_multicast(TokenKind kind, std::uint64_t token) const {
  return kind == TokenKind::fabric && lost_multicasts_.contains(token);
}

// Others who import the same handle come by the same object, for as long as that lives.
const SharedAllocation* MachineState::make_again(ClientId client, std::uint64_t token) {
  const auto lost = lost_multicasts_.extract(token);
  if (lost.empty()) return nullptr;
  const SharedAllocation& made =
      create_multicast(client, {lost.mapped().devices, lost.mapped().bytes, lost.mapped().properties});
  tokens_.emplace(Token{TokenKind::fabric, token}, made.id);
  token_of_.emplace(std::pair(TokenKind::fabric, made.id), token);
  return &made;
}

bool MachineState::has_multicast(ClientId client, std::uint64_t id) const {
  return clients_.at(client).holds.contains(id) && teams_.contains(id);
}

std::optional<model::JoinOutcome> MachineState::join(ClientId client, const JoinMulticast& wanted) {
  const int node = clients_.at(client).node;
  if (!has_multicast(client, wanted.id) || wanted.device < 0 || wanted.device >= shape_.devices) return std::nullopt;
  return teams_.join(wanted.id, {node, wanted.device});
}

std::optional<model::BindOutcome> MachineState::bind(ClientId client, const BindMulticast& wanted) {
  const Client& binder = clients_.at(client);
  if (!has_multicast(client, wanted.id) || !binder.holds.contains(wanted.memory)) return std::nullopt;
  const SharedAllocation& memory = allocations_.at(wanted.memory).allocation;
  const SharedAllocation& object = allocations_.at(wanted.id).allocation;
  const bool fits = memory.place == NodePlace(binder.node, model::Place::on_device(wanted.device)) &&
                    wanted.bytes > 0 && wanted.memory_offset <= memory.bytes &&
                    wanted.bytes <= memory.bytes - wanted.memory_offset && wanted.offset <= object.bytes &&
                    wanted.bytes <= object.bytes - wanted.offset;
  if (!fits) return std::nullopt;
  const auto outcome = teams_.bind(
      wanted.id, {{binder.node, wanted.device}, wanted.offset, wanted.bytes, wanted.memory, wanted.memory_offset});
  if (outcome == model::BindOutcome::bound) ++allocations_.at(wanted.memory).references;
  return outcome;
}

std::optional<std::uint64_t> MachineState::unbind(ClientId client, const UnbindMulticast& wanted) {
  if (!has_multicast(client, wanted.id)) return std::nullopt;
  const auto gone = teams_.unbind(wanted.id, {clients_.at(client).node, wanted.device}, wanted.offset, wanted.bytes);
  if (!gone) return std::nullopt;
  drop(gone->memory);
  return gone->memory;
}

std::optional<Multicast> MachineState::multicast(ClientId client, const AskMulticast& asked) const {
  constexpr std::size_t most_binds = 1000;  // well within a message
  if (!has_multicast(client, asked.id)) return std::nullopt;
  const Held& object = allocations_.at(asked.id);
  const std::vector<model::TeamDevice>& team = teams_.team(asked.id);
  const bool crosses_nodes = (object.allocation.properties.handle_types & abi::CU_MEM_HANDLE_TYPE_FABRIC) != 0;
  Multicast facts;
  facts.missing = teams_.missing(asked.id);
  facts.others = object.references > 1 || token_of_.contains({TokenKind::fabric, asked.id});
  facts.in_reach = shape_.devices * (crosses_nodes ? shape_.nodes : 1);
  for (const model::TeamDevice& device : team) {
    facts.team.push_back(static_cast<std::uint64_t>(device.node));
    facts.team.push_back(static_cast<std::uint64_t>(device.device));
  }
  const std::vector<model::MulticastBinding> bound = teams_.bound_in(asked.id, asked.offset, asked.bytes);
  for (std::size_t index = std::min<std::uint64_t>(asked.skip, bound.size()); index < bound.size(); ++index) {
    if (facts.binds.size() == most_binds * Multicast::fields_of_bind) {
      facts.more = true;
      break;
    }
    const model::MulticastBinding& one = bound[index];
    const auto member = std::find(team.begin(), team.end(), one.device) - team.begin();
    for (const std::uint64_t value :
         {static_cast<std::uint64_t>(member), one.offset, one.bytes, static_cast<std::uint64_t>(one.device.node),
          static_cast<std::uint64_t>(one.device.device),
          allocations_.at(one.memory).allocation.offset + one.memory_offset})
      facts.binds.push_back(value);
  }
  return facts;
}

}  // namespace cuvmm::emulator::broker
