#include "emulator/broker/machine_state.hpp"

#include <algorithm>
#include <utility>

namespace cuvmm::emulator::broker {
namespace {

constexpr std::uint64_t extent_alignment = std::uint64_t{2} << 20;
// Far more offsets than any place has bytes, so that fragmentation never refuses what the capacity allows.
constexpr std::uint64_t offset_space = std::uint64_t{1} << 50;

}  // namespace

MachineState::MachineState(const MachineShape& shape) : shape_(shape), teams_(shape.multicast_slots) {
  for (int node = 0; node < shape.nodes; ++node) {
    for (int device = 0; device < shape.devices; ++device)
      rooms_.emplace(NodePlace(node, model::Place::on_device(device)),
                     Room{model::AddressSpace(0, offset_space), shape.device_bytes});
    rooms_.emplace(NodePlace(node, model::Place::on_host()),
                   Room{model::AddressSpace(0, offset_space), shape.host_bytes});
  }
}

std::optional<MachineState::ClientId> MachineState::add_client(int node) {
  if (node < 0 || node >= shape_.nodes) return std::nullopt;
  clients_[next_client_].node = node;
  return next_client_++;
}

void MachineState::remove_client(ClientId client) {
  const auto gone = clients_.extract(client);
  if (gone.empty()) return;
  for (const std::uint64_t id : gone.mapped().holds) drop(id);
  for (const std::uint64_t pool : gone.mapped().pools) release_pool(pool);
}

bool MachineState::exists(const NodePlace& place) const {
  return rooms_.contains(place);
}

std::uint64_t MachineState::free(const NodePlace& place) const {
  return rooms_.at(place).free;
}

std::uint64_t MachineState::extent_bytes(const SharedAllocation& allocation) const {
  return allocation.bytes + (allocation.place.kind == PlaceKind::host ? shape_.host_gap : 0);
}

const SharedAllocation* MachineState::create(ClientId client, const NodePlace& place, std::uint64_t bytes,
                                             const Properties& properties) {
  Client& creator = clients_.at(client);
  const auto room = rooms_.find(place);
  if (room == rooms_.end() || place.node != creator.node || bytes == 0 || bytes % extent_alignment != 0 ||
      bytes > room->second.free)
    return nullptr;
  SharedAllocation made{next_allocation_, place, bytes, properties, 0, 0};
  const auto offset = room->second.offsets.take(extent_bytes(made), extent_alignment);
  if (!offset) return nullptr;
  made.offset = *offset;
  room->second.free -= bytes;
  ++next_allocation_;
  creator.holds.insert(made.id);
  return &allocations_.emplace(made.id, Held{made, 1}).first->second.allocation;
}

void MachineState::drop(std::uint64_t id) {
  const auto held = allocations_.find(id);
  if (--held->second.references > 0) return;
  if (held->second.allocation.place.kind == PlaceKind::multicast) {
    end_multicast(held);
    return;
  }
  const SharedAllocation& gone = held->second.allocation;
  rooms_.at(gone.place).free += gone.bytes;
  dead_.push_back({gone.place, gone.offset, gone.bytes});
  for (const TokenKind kind : {TokenKind::fabric, TokenKind::ipc})
    if (const auto token = token_of_.extract({kind, id}); !token.empty()) tokens_.erase({kind, token.mapped()});
  allocations_.erase(held);
}

bool MachineState::give_back(ClientId client, std::uint64_t id) {
  if (clients_.at(client).holds.erase(id) == 0) return false;
  drop(id);
  return true;
}

const SharedAllocation* MachineState::hold(ClientId client, std::uint64_t id) {
  Held& held = allocations_.at(id);
  if (clients_.at(client).holds.insert(id).second) ++held.references;
  return &held.allocation;
}

std::optional<MachineState::ExportId> MachineState::add_export(ClientId client, const std::vector<std::uint64_t>& ids,
                                                               bool importable) {
  const Client& exporter = clients_.at(client);
  if (ids.empty() ||
      !std::all_of(ids.begin(), ids.end(), [&](std::uint64_t id) { return exporter.holds.contains(id); }))
    return std::nullopt;
  for (const std::uint64_t id : ids) ++allocations_.at(id).references;
  exports_.emplace(next_export_, Export{ids, client, exporter.node, importable, 0});
  return next_export_++;
}

void MachineState::close_export(ExportId id) {
  const auto gone = exports_.extract(id);
  if (gone.empty()) return;
  for (const std::uint64_t allocation : gone.mapped().ids) drop(allocation);
  if (gone.mapped().pool != 0) release_pool(gone.mapped().pool);
}

const SharedAllocation* MachineState::import_export(ClientId client, ExportId id) {
  const auto found = exports_.find(id);
  if (found == exports_.end() || !found->second.importable || found->second.pool != 0 ||
      found->second.node != clients_.at(client).node)
    return nullptr;
  return hold(client, found->second.ids.front());
}

std::optional<std::uint64_t> MachineState::add_token(ClientId client, TokenKind kind, std::uint64_t id) {
  if (!clients_.at(client).holds.contains(id)) return std::nullopt;
  const auto [known, added] = token_of_.try_emplace({kind, id}, next_token_);
  if (added) tokens_.emplace(Token{kind, next_token_++}, id);
  return known->second;
}

const SharedAllocation* MachineState::import_token(ClientId client, TokenKind kind, std::uint64_t token) {
  const auto found = tokens_.find({kind, token});
  if (found == tokens_.end()) return nullptr;
  const bool reaches =
      kind == TokenKind::fabric || allocations_.at(found->second).allocation.place.node == clients_.at(client).node;
  return reaches ? hold(client, found->second) : nullptr;
}

std::vector<DeadExtent> MachineState::take_dead_extents() {
  return std::exchange(dead_, {});
}

void MachineState::is_zero(const DeadExtent& extent) {
  const std::uint64_t gap = extent.place.kind == PlaceKind::host ? shape_.host_gap : 0;
  rooms_.at(extent.place).offsets.give_back(extent.offset, extent.bytes + gap);
}

std::size_t MachineState::importable_exports_of(ClientId client) const {
  return static_cast<std::size_t>(std::count_if(exports_.begin(), exports_.end(), [&](const auto& entry) {
    return entry.second.exporter == client && entry.second.importable;
  }));
}

}  // namespace cuvmm::emulator::broker
