// Pools that are passed on, in a machine that is the process's own: to itself.
#include <cstring>
#include <utility>

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
  const bool is_new = pool->id == 0;
  const std::uint64_t id = is_new ? next_pool_ : pool->id;
  KeptPool& kept = pools_[id];
  try {
    if (is_new) kept.pool = std::make_shared<SharedPool>(SharedPool{id, pool->place});
    const auto made = exports_.add_pool(kept.pool);
    if (made) {
      *descriptor = *made;
      if (is_new) kept.had = 1;
      if (is_new) ++next_pool_;
      pool->id = id;
      return {};
    }
  } catch (...) {
    if (is_new) pools_.erase(id);
    throw;
  }
  const Answer none = no_descriptor_left(false);
  if (is_new) pools_.erase(id);
  return none;
}

Answer PrivateMemory::import_pool(SharedPool* pool, int descriptor) {
  const auto found = exports_.find_pool(descriptor);
  if (found == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::import_descriptor, "the descriptor is not open here, or is no pool's"};
  KeptPool& kept = pools_[found->id];  // which may have been dropped
  kept.pool = found;
  ++kept.had;
  *pool = *found;
  return {};
}

void PrivateMemory::drop_pool(std::uint64_t id) noexcept {
  if (const auto found = pools_.find(id); found != pools_.end() && --found->second.had == 0) pools_.erase(found);
}

Answer PrivateMemory::export_pool_range(CUmemPoolPtrExportData* data, std::uint64_t pool, const PoolRange& range) {
  KeptPool& kept = pools_.at(pool);
  KeptRange made{{}, range.offset, range.bytes};
  for (model::Allocation* memory : range.memory) {
    exported_[memory->id] = memory;
    made.ids.push_back(memory->id);
  }
  const auto [known, added] = kept.number_of.try_emplace(made, next_range_);
  kept.ranges.try_emplace(known->second, std::move(made));
  if (added) ++next_range_;
  PointerContent content;
  content.pool = pool;
  content.range = known->second;
  *data = {};
  std::memcpy(data, &content, sizeof content);
  return {};
}

Answer PrivateMemory::import_pool_range(PoolRange* range, std::uint64_t pool, const CUmemPoolPtrExportData& data) {
  const Answer unknown(CUDA_ERROR_INVALID_VALUE, Rule::pool_pointer,
                       "no allocation of this pool was exported as this, or it is gone");
  PointerContent content, expected;
  std::memcpy(static_cast<void*>(&content), &data, sizeof content);
  if (std::memcmp(content.magic, expected.magic, sizeof content.magic) != 0 || content.pool != pool) return unknown;
  const auto& ranges = pools_.at(pool).ranges;
  const auto found = ranges.find(content.range);
  if (found == ranges.end()) return unknown;
  *range = {{}, found->second.offset, found->second.bytes};
  range->memory.reserve(found->second.ids.size());
  for (const std::uint64_t id : found->second.ids) {
    model::Allocation* const memory = exported(id);
    if (memory == nullptr) {
      for (model::Allocation* had : std::exchange(range->memory, {})) store().drop_reference(*had);
      return unknown;
    }
    range->memory.push_back(memory);
  }
  return {};
}

}  // namespace cuvmm::emulator::memory
