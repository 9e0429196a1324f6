// Memory pools: what the stream-ordered allocator takes from the device and gives to programs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "driver/abi.hpp"
#include "emulator/model/address_space.hpp"
#include "emulator/model/physical_store.hpp"
#include "emulator/model/place.hpp"
#include "emulator/model/rights.hpp"

namespace cuvmm::emulator::model {

// Pools take memory in larger pieces than they are asked for, so that small allocations share them.
inline constexpr std::uint64_t pool_chunk_bytes = std::uint64_t{32} << 20;

// A number that grows and falls, and how high it has been since that was last forgotten.
class Watermark {
 public:
  void add(std::uint64_t bytes) { set(current_ + bytes); }
  void subtract(std::uint64_t bytes) { current_ -= bytes; }
  void set(std::uint64_t bytes) {
    current_ = bytes;
    reach(bytes);
  }
  // It was that high for a moment.
  void reach(std::uint64_t bytes) { high_ = bytes > high_ ? bytes : high_; }
  void forget() { high_ = current_; }
  [[nodiscard]] std::uint64_t current() const { return current_; }
  [[nodiscard]] std::uint64_t high() const { return high_; }

 private:
  std::uint64_t current_ = 0;
  std::uint64_t high_ = 0;
};

// A stream, as far as the order of allocations and frees goes; 0 stands for the host, which knows what it freed.
using StreamId = std::uint64_t;
inline constexpr StreamId several_streams = ~StreamId{0};

// Physical memory that a pool holds, at most 32 MiB of it, cut into extents. Chunks that follow each other without a
// gap are as one.
struct PoolChunk {
  Allocation* memory = nullptr;
  std::uint64_t bytes = 0;
  CUdeviceptr address = 0;  // of its first byte; a number alone in pools of graphs, whose allocations have their own
  AddressSpace room;        // offsets that are in no extent
  std::size_t extents = 0;
  // The stream in which something in it was freed since the host synchronized with that; 0: it has; several: with more
  // than one.
  StreamId unobserved = 0;
  bool exported = false;  // other processes may come for what lay there: it stays with the pool

  [[nodiscard]] CUdeviceptr end() const { return address + bytes; }
};

// Bytes of a pool, of one chunk or of several that follow each other. They belong to one allocation after the other:
// when an allocation has been freed and the free has not run yet, one that comes after the free in stream order may
// take them over.
struct PoolExtent {
  CUdeviceptr begin = 0;
  std::uint64_t bytes = 0;  // 0: it is none
};

// What a pool is, and stays.
struct PoolKind {
  Place place;
  std::uint64_t max_bytes = 0;  // 0: what the place has
  bool managed = false;
  int device = 0;         // whose pool it is, of one of managed memory
  bool standard = false;  // the one that there always is
  int handle_types = 0;   // by which it can be shared
  bool imported = false;  // it is another process's, or another pool of this one's: nothing is allocated from it here
};

// Where pools take memory and addresses from.
struct PoolSources {
  // Makes a chunk of host memory appear in the process, or disappear. Answers false if the system refuses.
  using HostView = std::function<bool(const PoolChunk&, bool visible)>;

  PhysicalStore& store;
  AddressSpace& addresses;
  std::uint64_t granularity = 0;
  HostView host_view;
  std::function<void(std::uint64_t shared_id)> shared_pool_ends{};  // of one that was exported or imported
};

// One pool. Not thread-safe. What only counts is public; chunks and extents are the pool's own.
class MemoryPool {
 public:
  // Whether chunks have addresses, at which they then stay until they are given back.
  enum class Addresses : unsigned char { of_chunks, of_allocations };

  MemoryPool(const PoolSources& sources, PoolKind kind, Addresses addresses);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool() = default;  // what it holds is the store's, and ends with that unless it was given back

  [[nodiscard]] const PoolKind& kind() const { return kind_; }
  [[nodiscard]] Place place() const { return kind_.place; }

  // An extent of `bytes` bytes at a multiple of `alignment`: of memory that the pool holds and nobody uses, or of more
  // that it takes from the store. False if there is none: the place or the pool's limit is exhausted.
  [[nodiscard]] bool take(std::uint64_t bytes, std::uint64_t alignment, PoolExtent& extent);
  void give_back(const PoolExtent& extent) noexcept;
  // The same after a free in that stream: without allow_opportunistic the extent rests, and serves that stream alone,
  // until the host has synchronized with it (wake()).
  void give_back_from(StreamId stream, const PoolExtent& extent) noexcept;
  [[nodiscard]] bool take_resting(std::uint64_t bytes, std::uint64_t alignment, StreamId stream, PoolExtent& extent);
  void wake() noexcept;
  // The first `bytes` bytes of an extent, which loses them.
  [[nodiscard]] PoolExtent split(PoolExtent& extent, std::uint64_t bytes);

  // Notes that other processes are told of the extent.
  void mark_exported(const PoolExtent& extent);
  // Of an imported pool: makes this memory, one piece behind the other, appear, unless it has, and takes an extent that
  // begins `offset` bytes behind its beginning. The pool has one more reference to each piece then. False if there are
  // no addresses for it, or if some of it is in an extent.
  [[nodiscard]] bool take_imported(const std::vector<Allocation*>& memory, std::uint64_t offset, std::uint64_t bytes,
                                   PoolExtent& extent);
  // Where that memory appears, if it does.
  [[nodiscard]] std::optional<CUdeviceptr> imported_at(const std::vector<Allocation*>& memory) const {
    const auto known = imported_.find(memory);
    return known == imported_.end() ? std::nullopt : std::optional(known->second);
  }

  // Calls each(chunk, offset, bytes) for the pieces of an extent. Those of one that went back may be missing.
  template <class Each>
  void for_each_piece(PoolExtent extent, Each&& each) const;
  // The chunk that contains the address, or null.
  [[nodiscard]] const PoolChunk* chunk_at(CUdeviceptr address) const;

  // Gives unused chunks back to the store as long as `bytes_to_keep` bytes are left; but not those of which the host
  // does not know yet that they are unused.
  void trim(std::uint64_t bytes_to_keep) noexcept;
  // All unused chunks. False if there was none.
  bool give_back_unused() noexcept;
  // The same at the pool's end, where also those go that it kept to be shared.
  void give_back_all() noexcept;
  // What synchronizing with the host does: gives unused chunks back while more than the release threshold is held.
  void release_above_threshold() noexcept;
  // The host has synchronized with that stream, or with all.
  void observe(StreamId stream) noexcept;
  void observe_all() noexcept;

  Rights rights;
  Watermark used;  // bytes of its allocations, as asked for, whose free was not asked for
  [[nodiscard]] Watermark& reserved() { return reserved_; }
  [[nodiscard]] const Watermark& reserved() const { return reserved_; }
  std::uint64_t release_threshold = 0;
  bool follow_event_dependencies = true;
  bool allow_opportunistic = true;
  bool allow_internal_dependencies = true;
  std::size_t allocations = 0;
  std::uintptr_t handle = 0;    // by which callers know it
  std::uint64_t shared_id = 0;  // by which processes know it; 0: it was not shared yet
  bool destroyed = false;       // goes with its last allocation

 private:
  struct Resting {
    PoolExtent extent;
    StreamId stream = 0;
  };

  using Chunks = std::map<CUdeviceptr, PoolChunk>;  // by address

  [[nodiscard]] bool take_held(std::uint64_t bytes, std::uint64_t alignment, PoolExtent& extent);
  // Takes an extent that begins in the room at the end of the chunk and goes on in those that follow.
  [[nodiscard]] bool take_across(Chunks::const_iterator chunk, std::uint64_t bytes, std::uint64_t alignment,
                                 PoolExtent& extent);
  void take_pieces(const PoolExtent& extent);
  void give_back_pieces(const PoolExtent& extent) noexcept;
  [[nodiscard]] bool grow(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t unit);
  // Chunks that follow each other, at that address, or, if it is 0, where there is room: all of these bytes or none.
  [[nodiscard]] bool add_chunks(std::uint64_t bytes, CUdeviceptr at);
  [[nodiscard]] AddressSpace& places();
  // Whether a chunk may go, of those that are in no use.
  template <class MayGo>
  void release_chunks(MayGo&& may_go) noexcept;
  [[nodiscard]] std::optional<CUdeviceptr> take_places(std::uint64_t bytes, CUdeviceptr at);
  [[nodiscard]] bool see_chunk(PoolChunk& chunk);
  void hide_chunk(const PoolChunk& chunk) noexcept;
  [[nodiscard]] std::optional<CUdeviceptr> place_imported(const std::vector<Allocation*>& memory);
  void note_attempt(std::uint64_t bytes);
  void give_back(PoolChunk& chunk) noexcept;

  // What may be reserved in all.
  [[nodiscard]] std::uint64_t limit() const;

  const PoolSources& sources_;
  PoolKind kind_;
  Addresses addresses_;
  AddressSpace numbers_;  // instead of addresses, where chunks have none
  Chunks chunks_;
  std::map<std::vector<Allocation*>, CUdeviceptr> imported_;  // where memory appears that was imported
  std::vector<Resting> resting_;
  std::size_t extents_ = 0;  // in all chunks
  Watermark reserved_;
};

template <class Each>
void MemoryPool::for_each_piece(PoolExtent extent, Each&& each) const {
  auto chunk = chunks_.upper_bound(extent.begin);
  if (chunk != chunks_.begin()) --chunk;
  for (; chunk != chunks_.end() && extent.bytes > 0; ++chunk) {
    const std::uint64_t offset = extent.begin - chunk->first;
    if (offset >= chunk->second.bytes) return;
    const std::uint64_t bytes = std::min(extent.bytes, chunk->second.bytes - offset);
    each(chunk->second, offset, bytes);
    extent.begin += bytes;
    extent.bytes -= bytes;
  }
}

}  // namespace cuvmm::emulator::model
