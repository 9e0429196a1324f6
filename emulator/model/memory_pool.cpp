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
  const std::uint64_t least = round_up(bytes, sources_.granularity);
  if (least < bytes) return false;
  const bool added = add_chunk(round_up(bytes, chunk_bytes)) || add_chunk(least);
  if (added) return take_held(bytes, alignment, extent);
  // What lies unused in chunks that are too small makes room for one that is not.
  if (give_back_unused() && add_chunk(least)) return take_held(bytes, alignment, extent);
  note_attempt(least);
  return false;
}

// The driver takes chunks until there are no more, and gives them back: the high mark tells of it.
void MemoryPool::note_attempt(std::uint64_t bytes) {
  if (kind_.max_bytes != 0 || bytes > sources_.store.total(kind_.place)) return;
  reserved_.reach(reserved_.current() + sources_.store.free(kind_.place) / chunk_bytes * chunk_bytes);
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
  const std::uint64_t rounded = round_up(kind_.max_bytes, chunk_bytes);
  const std::uint64_t limit = rounded < kind_.max_bytes || kind_.max_bytes == 0 ? ~std::uint64_t{0} : rounded;
  if (bytes == 0 || bytes > limit || reserved_.current() > limit - bytes) return false;
  std::list<PoolChunk> added;
  added.push_back({nullptr, bytes, 0, AddressSpace(0, bytes), 0, true});
  PoolChunk& chunk = added.front();
  chunk.memory = sources_.store.create(kind_.place, bytes, {});
  if (chunk.memory == nullptr) return false;
  try {
    if (!place_chunk(chunk)) {
      sources_.store.drop_reference(*chunk.memory);
      return false;
    }
  } catch (...) {
    sources_.store.drop_reference(*chunk.memory);
    throw;
  }
  chunks_.splice(chunks_.end(), added);
  reserved_.add(bytes);
  return true;
}

// The lowest addresses that are free, so that what follows on memory that went back lies where that lay.
bool MemoryPool::place_chunk(PoolChunk& chunk) {
  if (addresses_ == Addresses::of_allocations) return true;
  const auto where = sources_.addresses.take(chunk.bytes, sources_.granularity);
  if (!where) return false;
  chunk.address = *where;
  if (!kind_.place.is_host() || sources_.host_view(chunk, true)) return true;
  sources_.addresses.give_back(*where, chunk.bytes);
  return false;
}

void MemoryPool::give_back(PoolChunk& chunk) noexcept {
  if (addresses_ == Addresses::of_chunks) {
    if (kind_.place.is_host()) (void)sources_.host_view(chunk, false);
    sources_.addresses.give_back(chunk.address, chunk.bytes);
  }
  sources_.store.drop_reference(*chunk.memory);
}

void MemoryPool::give_back(const PoolExtent& extent) noexcept {
  extent.chunk->room.give_back(extent.offset, extent.bytes);
  --extent.chunk->extents;
  --extents_;
}

void MemoryPool::give_back_from(StreamId stream, const PoolExtent& extent) noexcept {
  if (stream != 0) extent.chunk->observed = false;
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
  for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
    const auto here = chunk++;
    if (here->extents != 0 || !may_go(*here)) continue;
    reserved_.subtract(here->bytes);
    give_back(*here);
    chunks_.erase(here);
  }
}

void MemoryPool::trim(std::uint64_t bytes_to_keep) noexcept {
  release_chunks(
      [&](const PoolChunk& chunk) { return chunk.observed && reserved_.current() - chunk.bytes >= bytes_to_keep; });
}

bool MemoryPool::give_back_unused() noexcept {
  const std::uint64_t before = reserved_.current();
  wake();
  release_chunks([](const PoolChunk&) { return true; });
  return reserved_.current() < before;
}

void MemoryPool::release_above_threshold() noexcept {
  wake();
  for (PoolChunk& chunk : chunks_) chunk.observed = true;
  release_chunks([&](const PoolChunk&) { return reserved_.current() > release_threshold; });
}

}  // namespace cuvmm::emulator::model
