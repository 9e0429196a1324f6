#include "emulator/model/memory_pool.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cuvmm::emulator::model {
namespace {

constexpr std::uint64_t chunk_bytes = pool_chunk_bytes;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

MemoryPool::MemoryPool(const PoolSources& sources, PoolKind kind, Addresses addresses)
    : sources_(sources), kind_(kind), addresses_(addresses), numbers_(sources.granularity, std::uint64_t{1} << 62) {}

AddressSpace& MemoryPool::places() {
  return addresses_ == Addresses::of_chunks ? sources_.addresses : numbers_;
}

std::uint64_t MemoryPool::limit() const {
  const std::uint64_t rounded = round_up(kind_.max_bytes, chunk_bytes);
  return rounded < kind_.max_bytes || kind_.max_bytes == 0 ? ~std::uint64_t{0} : rounded;
}

bool MemoryPool::take(std::uint64_t bytes, std::uint64_t alignment, PoolExtent& extent) {
  if (take_held(bytes, alignment, extent)) return true;
  const std::uint64_t granularity = sources_.granularity;
  if (round_up(bytes, granularity) < bytes) return false;
  if (grow(bytes, alignment, chunk_bytes) || grow(bytes, alignment, granularity))
    return take_held(bytes, alignment, extent);
  // What lies unused in chunks that are too small makes room for one that is not.
  if (give_back_unused() && grow(bytes, alignment, granularity)) return take_held(bytes, alignment, extent);
  note_attempt(round_up(bytes, granularity));
  return false;
}

// The driver takes chunks until there are no more, and gives them back: the high mark tells of it.
void MemoryPool::note_attempt(std::uint64_t bytes) {
  if (bytes > sources_.store.total(kind_.place)) return;
  const std::uint64_t free = sources_.store.free(kind_.place) / chunk_bytes * chunk_bytes;
  reserved_.reach(std::min(reserved_.current() + free, std::max(reserved_.current(), limit())));
}

bool MemoryPool::take_held(std::uint64_t bytes, std::uint64_t alignment, PoolExtent& extent) {
  resting_.reserve(extents_ + 1);  // so that a free needs no memory
  for (auto chunk = chunks_.begin(); chunk != chunks_.end(); ++chunk) {
    if (const auto offset = chunk->second.room.take(bytes, alignment)) {
      ++chunk->second.extents;
      extent = {chunk->first + *offset, bytes};
    } else if (!take_across(chunk, bytes, alignment, extent)) {
      continue;
    }
    ++extents_;
    return true;
  }
  return false;
}

bool MemoryPool::take_across(Chunks::const_iterator chunk, std::uint64_t bytes, std::uint64_t alignment,
                             PoolExtent& extent) {
  CUdeviceptr end = chunk->second.end();
  const CUdeviceptr begin = round_up(end - chunk->second.room.free_at_end(), alignment);
  bool whole = begin < end;
  while (whole && end - begin < bytes) {
    if (++chunk == chunks_.end() || chunk->first != end) return false;
    const std::uint64_t free = chunk->second.room.free_at_begin();
    end += free;
    whole = free == chunk->second.bytes;
  }
  if (begin >= end || end - begin < bytes) return false;
  extent = {begin, bytes};
  take_pieces(extent);
  return true;
}

void MemoryPool::take_pieces(const PoolExtent& extent) {
  PoolExtent taken{extent.begin, 0};
  try {
    for_each_piece(extent, [&](const PoolChunk& piece, std::uint64_t offset, std::uint64_t bytes) {
      PoolChunk& chunk = chunks_.at(piece.address);
      (void)chunk.room.take_at(offset, bytes);
      ++chunk.extents;
      taken.bytes += bytes;
    });
  } catch (...) {
    give_back_pieces(taken);
    throw;
  }
}

void MemoryPool::give_back_pieces(const PoolExtent& extent) noexcept {
  for_each_piece(extent, [&](const PoolChunk& piece, std::uint64_t offset, std::uint64_t bytes) {
    PoolChunk& chunk = chunks_.find(piece.address)->second;
    chunk.room.give_back(offset, bytes);
    --chunk.extents;
  });
}

// What is missing behind the last chunk's free end, or all of it elsewhere; in whole units.
bool MemoryPool::grow(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t unit) {
  if (!chunks_.empty()) {
    const PoolChunk& last = chunks_.rbegin()->second;
    const CUdeviceptr begin = round_up(last.end() - last.room.free_at_end(), alignment);
    if (begin < last.end() && add_chunks(round_up(bytes - (last.end() - begin), unit), last.end())) return true;
  }
  return add_chunks(round_up(bytes, unit), 0);
}

// The lowest addresses that are free, so that what follows on memory that went back lies where that lay.
std::optional<CUdeviceptr> MemoryPool::take_places(std::uint64_t bytes, CUdeviceptr at) {
  if (at == 0) return places().take(bytes, sources_.granularity);
  return places().take_at(at, bytes) ? std::optional(at) : std::nullopt;
}

bool MemoryPool::add_chunks(std::uint64_t bytes, CUdeviceptr at) {
  if (bytes == 0 || bytes > limit() || reserved_.current() > limit() - bytes ||
      bytes > sources_.store.total(kind_.place))
    return false;
  const auto begin = take_places(bytes, at);
  if (!begin) return false;
  Chunks added;
  std::uint64_t divided = 0;
  const auto undo = [&] {
    for (const auto& [address, chunk] : added) {
      if (chunk.memory == nullptr) continue;
      hide_chunk(chunk);
      sources_.store.drop_reference(*chunk.memory);
    }
    CUdeviceptr place = *begin;  // as they were divided
    for (; divided > 0; --divided, place += chunk_bytes) places().give_back(place, chunk_bytes);
    places().give_back(place, *begin + bytes - place);
    return false;
  };
  try {
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t piece = std::min(chunk_bytes, bytes - done);
      if (done != 0) {
        places().divide();  // pieces are given back one by one
        ++divided;
      }
      PoolChunk& chunk =
          added.emplace(*begin + done, PoolChunk{nullptr, piece, *begin + done, AddressSpace(0, piece), 0, 0, false})
              .first->second;
      chunk.memory = sources_.store.create(kind_.place, piece, {});
      if (chunk.memory == nullptr || !see_chunk(chunk)) return undo();
      done += piece;
    }
  } catch (...) {
    undo();
    throw;
  }
  chunks_.merge(added);
  reserved_.add(bytes);
  return true;
}

void MemoryPool::hide_chunk(const PoolChunk& chunk) noexcept {
  if (addresses_ == Addresses::of_chunks && kind_.place.is_host()) (void)sources_.host_view(chunk, false);
}

void MemoryPool::mark_exported(const PoolExtent& extent) {
  for_each_piece(
      extent, [&](const PoolChunk& piece, std::uint64_t, std::uint64_t) { chunks_.at(piece.address).exported = true; });
}

bool MemoryPool::see_chunk(PoolChunk& chunk) {
  const bool seen = addresses_ == Addresses::of_chunks && kind_.place.is_host();
  return !seen || sources_.host_view(chunk, true);
}

// What lies in several pieces needs them at addresses that follow each other, wherever they appear already.
std::optional<CUdeviceptr> MemoryPool::place_imported(const std::vector<Allocation*>& memory) {
  if (const auto known = imported_.find(memory); known != imported_.end()) return known->second;
  std::uint64_t bytes = 0;
  for (const Allocation* piece : memory) bytes += piece->bytes;
  const auto begin = places().take(bytes, sources_.granularity);
  if (!begin) return std::nullopt;
  Chunks added;
  std::size_t divided = 0;
  const auto undo = [&] {
    for (const auto& [address, chunk] : added) hide_chunk(chunk);
    CUdeviceptr place = *begin;  // as they were divided
    for (std::size_t piece = 0; piece < divided; place += memory[piece++]->bytes)
      places().give_back(place, memory[piece]->bytes);
    places().give_back(place, *begin + bytes - place);
  };
  try {
    CUdeviceptr address = *begin;
    for (Allocation* piece : memory) {
      PoolChunk& chunk =
          added.emplace(address, PoolChunk{piece, piece->bytes, address, AddressSpace(0, piece->bytes), 0, 0, false})
              .first->second;
      if (address != *begin) {
        places().divide();  // pieces are given back one by one
        ++divided;
      }
      if (!see_chunk(chunk)) {
        undo();
        return std::nullopt;
      }
      address += piece->bytes;
    }
    imported_.emplace(memory, *begin);
  } catch (...) {
    undo();
    throw;
  }
  for (const auto& [address, chunk] : added) sources_.store.add_reference(*chunk.memory);
  chunks_.merge(added);
  reserved_.add(bytes);
  return begin;
}

bool MemoryPool::take_imported(const std::vector<Allocation*>& memory, std::uint64_t offset, std::uint64_t bytes,
                               PoolExtent& extent) {
  const auto begin = place_imported(memory);
  if (!begin) return false;
  resting_.reserve(extents_ + 1);  // so that a free needs no memory
  const PoolExtent wanted{*begin + offset, bytes};
  PoolExtent taken{wanted.begin, 0};
  bool free = true;
  try {
    for_each_piece(wanted, [&](const PoolChunk& piece, std::uint64_t at, std::uint64_t of_piece) {
      PoolChunk& chunk = chunks_.at(piece.address);
      free = free && chunk.room.take_at(at, of_piece);
      if (!free) return;
      ++chunk.extents;
      taken.bytes += of_piece;
    });
  } catch (...) {
    give_back_pieces(taken);
    throw;
  }
  if (taken.bytes != bytes) {
    give_back_pieces(taken);
    return false;
  }
  extent = wanted;
  ++extents_;
  return true;
}

void MemoryPool::give_back(PoolChunk& chunk) noexcept {
  hide_chunk(chunk);
  places().give_back(chunk.address, chunk.bytes);
  sources_.store.drop_reference(*chunk.memory);
}

void MemoryPool::give_back(const PoolExtent& extent) noexcept {
  give_back_pieces(extent);
  --extents_;
}

void MemoryPool::give_back_from(StreamId stream, const PoolExtent& extent) noexcept {
  if (stream != 0)
    for_each_piece(extent, [&](const PoolChunk& piece, std::uint64_t, std::uint64_t) {
      StreamId& unobserved = chunks_.find(piece.address)->second.unobserved;
      unobserved = unobserved == 0 || unobserved == stream ? stream : several_streams;
    });
  if (!allow_opportunistic && !kind_.imported && resting_.size() < resting_.capacity())
    resting_.push_back({extent, stream});
  else
    give_back(extent);
}

bool MemoryPool::take_resting(std::uint64_t bytes, std::uint64_t alignment, StreamId stream, PoolExtent& extent) {
  resting_.reserve(extents_ + 1);  // which split() does, too
  const auto found = std::find_if(resting_.begin(), resting_.end(), [&](const Resting& resting) {
    return resting.stream == stream && resting.extent.bytes >= bytes && resting.extent.begin % alignment == 0;
  });
  if (found == resting_.end()) return false;
  extent = split(found->extent, bytes);
  if (found->extent.bytes == 0) resting_.erase(found);
  return true;
}

PoolExtent MemoryPool::split(PoolExtent& extent, std::uint64_t bytes) {
  const PoolExtent front{extent.begin, bytes};
  if (extent.bytes == bytes) {
    extent.bytes = 0;
    return front;
  }
  const CUdeviceptr cut = extent.begin + bytes;
  resting_.reserve(extents_ + 1);
  PoolChunk& chunk = std::prev(chunks_.upper_bound(cut))->second;
  if (cut != chunk.address) {  // inside the chunk
    chunk.room.divide();
    ++chunk.extents;
  }
  ++extents_;
  extent = {cut, extent.bytes - bytes};
  return front;
}

const PoolChunk* MemoryPool::chunk_at(CUdeviceptr address) const {
  const auto after = chunks_.upper_bound(address);
  if (after == chunks_.begin()) return nullptr;
  const PoolChunk& chunk = std::prev(after)->second;
  return address < chunk.end() ? &chunk : nullptr;
}

void MemoryPool::wake() noexcept {
  for (const Resting& resting : resting_) give_back(resting.extent);
  resting_.clear();
}

template <class MayGo>
void MemoryPool::release_chunks(MayGo&& may_go) noexcept {
  for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
    const auto here = chunk++;
    if (here->second.extents != 0 || !may_go(here->second)) continue;
    reserved_.subtract(here->second.bytes);
    give_back(here->second);
    chunks_.erase(here);
  }
}

void MemoryPool::trim(std::uint64_t bytes_to_keep) noexcept {
  if (kind_.imported) return;
  release_chunks([&](const PoolChunk& chunk) {
    return !chunk.exported && chunk.unobserved == 0 && reserved_.current() - chunk.bytes >= bytes_to_keep;
  });
}

bool MemoryPool::give_back_unused() noexcept {
  const std::uint64_t before = reserved_.current();
  wake();
  if (!kind_.imported) release_chunks([](const PoolChunk& chunk) { return !chunk.exported; });
  return reserved_.current() < before;
}

void MemoryPool::give_back_all() noexcept {
  wake();
  release_chunks([](const PoolChunk&) { return true; });
  imported_.clear();
}

void MemoryPool::observe(StreamId stream) noexcept {
  for (auto& [address, chunk] : chunks_)
    if (chunk.unobserved == stream) chunk.unobserved = 0;
}

void MemoryPool::observe_all() noexcept {
  for (auto& [address, chunk] : chunks_) chunk.unobserved = 0;
}

void MemoryPool::release_above_threshold() noexcept {
  wake();
  if (kind_.imported) return;
  release_chunks([&](const PoolChunk& chunk) { return !chunk.exported && reserved_.current() > release_threshold; });
}

}  // namespace cuvmm::emulator::model
