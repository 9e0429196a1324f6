// Pools whose memory processes share.
#include <algorithm>

#include "emulator/broker/machine_state.hpp"

namespace cuvmm::emulator::broker {

std::optional<std::uint64_t> MachineState::add_pool(ClientId client, const NodePlace& place) {
  Client& owner = clients_.at(client);
  if (!exists(place) || place.node != owner.node) return std::nullopt;
  pools_.emplace(next_pool_, KnownPool{place, 1, {}, {}, {}});
  owner.pools.insert(next_pool_);
  return next_pool_++;
}

std::optional<MachineState::ExportId> MachineState::add_pool_export(ClientId client, std::uint64_t pool) {
  const Client& exporter = clients_.at(client);
  if (!exporter.pools.contains(pool)) return std::nullopt;
  ++pools_.at(pool).references;
  exports_.emplace(next_export_, Export{{}, client, exporter.node, true, pool});
  return next_export_++;
}

std::optional<Pool> MachineState::import_pool(ClientId client, ExportId id) {
  const auto found = exports_.find(id);
  Client& importer = clients_.at(client);
  if (found == exports_.end() || found->second.pool == 0 || found->second.node != importer.node) return std::nullopt;
  const std::uint64_t pool = found->second.pool;
  if (importer.pools.insert(pool).second) ++pools_.at(pool).references;
  return Pool{pool, pools_.at(pool).place};
}

bool MachineState::drop_pool(ClientId client, std::uint64_t pool) {
  if (clients_.at(client).pools.erase(pool) == 0) return false;
  release_pool(pool);
  return true;
}

void MachineState::release_pool(std::uint64_t pool) {
  const auto found = pools_.find(pool);
  if (--found->second.references > 0) return;
  for (const std::uint64_t id : found->second.keeps) drop(id);
  pools_.erase(found);
}

bool MachineState::is_of_pool(ExportId id) const {
  const auto found = exports_.find(id);
  return found != exports_.end() && found->second.pool != 0;
}

bool MachineState::is_of_memory(ExportId id) const {
  const auto found = exports_.find(id);
  return found != exports_.end() && found->second.pool == 0 && found->second.importable;
}

std::optional<std::uint64_t> MachineState::add_pool_range(ClientId client, const ExportPoolRange& range) {
  const Client& exporter = clients_.at(client);
  const auto holds = [&](std::uint64_t id) { return exporter.holds.contains(id); };
  if (!exporter.pools.contains(range.pool) || range.ids.empty() ||
      !std::all_of(range.ids.begin(), range.ids.end(), holds))
    return std::nullopt;
  KnownPool& pool = pools_.at(range.pool);
  const RangeOfPool made{range.ids, range.offset, range.bytes};
  const auto [known, added] = pool.token_of.try_emplace(made, next_token_);
  if (added) pool.ranges.emplace(next_token_++, made);
  for (const std::uint64_t id : range.ids)
    if (pool.keeps.insert(id).second) ++allocations_.at(id).references;
  return known->second;
}

const MachineState::RangeOfPool* MachineState::find_range(ClientId client, std::uint64_t pool,
                                                          std::uint64_t token) const {
  if (!clients_.at(client).pools.contains(pool)) return nullptr;
  const auto& ranges = pools_.at(pool).ranges;
  const auto found = ranges.find(token);
  return found == ranges.end() ? nullptr : &found->second;
}

std::optional<PoolRange> MachineState::pool_range(ClientId client, std::uint64_t pool, std::uint64_t token) const {
  const RangeOfPool* const range = find_range(client, pool, token);
  if (range == nullptr) return std::nullopt;
  return PoolRange{range->ids.size(), range->offset, range->bytes};
}

const SharedAllocation* MachineState::open_pool_memory(ClientId client, const OpenPoolMemory& piece) {
  const RangeOfPool* const range = find_range(client, piece.pool, piece.token);
  if (range == nullptr || piece.index >= range->ids.size()) return nullptr;
  return hold(client, range->ids[piece.index]);
}

}  // namespace cuvmm::emulator::broker
