// Pools that are passed on, in a machine that is the process's own: to itself.
#include <cstring>

#include "emulator/memory/private_memory.hpp"

namespace cuvmm::emulator::memory {
namespace {

using namespace cuvmm::abi;

// What tells of an exported allocation; the rest of the 64 bytes is zero.
struct PointerContent {
  char magic[8] = {'c', 'u', 'v', 'm', 'm', 'p', 'p', '1'};
  std::uint64_t pool = 0;
  std::uint64_t range = 0;
};

}  // namespace

Answer PrivateMemory::export_pool(int* descriptor, SharedPool* pool) {
  const bool full = descriptor_limit_ && exports_.size() >= *descriptor_limit_;
  if (full) return no_descriptor_left(full);
  std::map<std::uint64_t, HadPool> fresh;  // what needs memory comes first
  if (pool->id == 0) fresh[next_pool_] = {std::make_shared<KnownPool>(SharedPool{next_pool_, pool->place}, store()), 1};
  const std::shared_ptr<KnownPool> known = pool->id == 0 ? fresh.begin()->second.pool : pools_.at(pool->id).pool;
  const auto made = exports_.add_pool(known);
  if (!made) return no_descriptor_left(false);
  *descriptor = *made;
  pool->id = known->id;
  if (!fresh.empty()) ++next_pool_;
  pools_.merge(fresh);
  return {};
}

Answer PrivateMemory::import_pool(SharedPool* pool, int descriptor) {
  const auto found = exports_.find_pool(descriptor);
  if (found == nullptr && exports_.find(descriptor))
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::import_descriptor, "the descriptor is one of memory"};
  if (found == nullptr)
    return {CUDA_ERROR_UNKNOWN, Rule::import_descriptor, "the descriptor is not open here, or is no pool's"};
  HadPool& had = pools_[found->id];  // which may have been dropped
  had.pool = std::static_pointer_cast<KnownPool>(found);
  ++had.times;
  *pool = *found;
  return {};
}

void PrivateMemory::drop_pool(std::uint64_t id) noexcept {
  if (const auto found = pools_.find(id); found != pools_.end() && --found->second.times == 0) pools_.erase(found);
}

Answer PrivateMemory::export_pool_range(CUmemPoolPtrExportData* data, std::uint64_t pool, const PoolRange& range) {
  KnownPool& known = *pools_.at(pool).pool;
  const KeptRange made{range.memory, range.offset, range.bytes};
  const auto [number, added] = known.number_of.try_emplace(made, next_range_);
  if (added) ++next_range_;
  known.ranges.try_emplace(number->second, made);
  for (model::Allocation* memory : range.memory)
    if (known.keeps.insert(memory).second) store().add_reference(*memory);
  PointerContent content;
  content.pool = pool;
  content.range = number->second;
  *data = {};
  std::memcpy(data, &content, sizeof content);
  return {};
}

Answer PrivateMemory::import_pool_range(PoolRange* range, std::uint64_t pool, const CUmemPoolPtrExportData& data) {
  PointerContent content, expected;
  std::memcpy(static_cast<void*>(&content), &data, sizeof content);
  const auto& ranges = pools_.at(pool).pool->ranges;
  const auto found = ranges.find(content.range);
  if (std::memcmp(content.magic, expected.magic, sizeof content.magic) != 0 || content.pool != pool ||
      found == ranges.end())
    return {CUDA_ERROR_INVALID_VALUE, Rule::pool_shared, "no allocation of this pool was exported as this"};
  *range = {found->second.memory, found->second.offset, found->second.bytes};
  for (model::Allocation* memory : range->memory) store().add_reference(*memory);
  return {};
}

}  // namespace cuvmm::emulator::memory
