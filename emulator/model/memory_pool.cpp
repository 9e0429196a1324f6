#include "emulator/model/memory_pool.hpp"

#include <algorithm>

namespace cuvmm::emulator::model {
namespace {

// Pools take memory in larger pieces than they are asked for, so that small allocations share them.
constexpr std::uint64_t chunk_bytes = std::uint64_t{32} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

bool MemoryPool::take(std::uint64_t bytes, std::uint64_t alignment, PoolExtent& extent) {
  if (take_held(bytes, alignment, extent)) return true;
  if (round_up(bytes, granularity_) < bytes) return false;
  const bool added = add_chunk(round_up(bytes, chunk_bytes)) || add_chunk(round_up(bytes, granularity_));
  if (added) return take_held(bytes, alignment, extent);
  // What lies unused in chunks that are too small makes room for one that is not.
  const std::uint64_t before = reserved_.current();
  trim(0);
  return reserved_.current() < before && add_chunk(round_up(bytes, granularity_)) &&
         take_held(bytes, alignment, extent);
}

bool MemoryPool::take_held(std::uint64_t bytes, std::uint64_t alignment, PoolExtent& extent) {
  resting_.reserve(extents_ + 1);  // so that a free needs no memory
  for (PoolChunk& chunk : chunks_) {
    const auto offset = chunk.room.take(bytes, alignment);
    if (!offset) continue;
    ++chunk.extents;
    ++extents_;
    extent = {&chunk, *offset, bytes};
    return true;
  }
  return false;
}

bool MemoryPool::add_chunk(std::uint64_t bytes) {
  const std::uint64_t limit = max_bytes_ == 0 ? ~std::uint64_t{0} : round_up(max_bytes_, granularity_);
  if (bytes > limit || reserved_.current() > limit - bytes) return false;
  std::list<PoolChunk> added;
  added.push_back({nullptr, bytes, AddressSpace(0, bytes), 0});
  Allocation* memory = store_.create(place_, bytes, {});
  if (memory == nullptr) return false;
  added.front().memory = memory;
  chunks_.splice(chunks_.end(), added);
  reserved_.add(bytes);
  return true;
}

void MemoryPool::give_back(const PoolExtent& extent) noexcept {
  extent.chunk->room.give_back(extent.offset, extent.bytes);
  --extent.chunk->extents;
  --extents_;
}

void MemoryPool::give_back_from(StreamId stream, const PoolExtent& extent) noexcept {
  if (!allow_opportunistic && resting_.size() < resting_.capacity())
    resting_.push_back({extent, stream});
  else
    give_back(extent);
}

bool MemoryPool::take_resting(std::uint64_t bytes, std::uint64_t most, StreamId stream, PoolExtent& extent) {
  const auto found = std::find_if(resting_.begin(), resting_.end(), [&](const Resting& resting) {
    return resting.stream == stream && resting.extent.bytes >= bytes && resting.extent.bytes <= most;
  });
  if (found == resting_.end()) return false;
  extent = found->extent;
  resting_.erase(found);
  return true;
}

void MemoryPool::wake() noexcept {
  for (const Resting& resting : resting_) give_back(resting.extent);
  resting_.clear();
}

template <class MayGo>
void MemoryPool::release_chunks(MayGo&& may_go) noexcept {
  wake();
  for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
    const auto here = chunk++;
    if (here->extents != 0 || !may_go(here->bytes)) continue;
    reserved_.subtract(here->bytes);
    store_.drop_reference(*here->memory);
    chunks_.erase(here);
  }
}

void MemoryPool::trim(std::uint64_t bytes_to_keep) noexcept {
  release_chunks([&](std::uint64_t bytes) { return reserved_.current() - bytes >= bytes_to_keep; });
}

void MemoryPool::release_above_threshold() noexcept {
  release_chunks([&](std::uint64_t) { return reserved_.current() > release_threshold; });
}

}  // namespace cuvmm::emulator::model
