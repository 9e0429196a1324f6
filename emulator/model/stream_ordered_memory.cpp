#include "emulator/model/stream_ordered_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>

namespace cuvmm::emulator::model {
namespace {

constexpr std::uint64_t small_alignment = 512;
constexpr std::uint64_t largest_small = std::uint64_t{1} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Answer no_allocation(CUdeviceptr address) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::pool_pointer, fmt::format("{:#x} is no live allocation", address)};
}

}  // namespace

std::shared_ptr<MemoryPool> StreamOrderedMemory::add_pool(const PoolKind& kind, MemoryPool::Addresses addresses) {
  auto pool = std::make_shared<MemoryPool>(sources_, kind, addresses);
  const auto open_to = [&](Accessor who) { pool->rights.set(who, abi::CU_MEM_ACCESS_FLAGS_PROT_READWRITE); };
  if (kind.place.is_host()) {
    open_to(Accessor::host());
    for (int device = 0; kind.managed && device < max_devices; ++device) open_to(Accessor::device(device));
  } else {
    open_to(Accessor::device(kind.place.device));
  }
  pools_.push_back(pool);
  return pool;
}

std::shared_ptr<MemoryPool> StreamOrderedMemory::create_pool(const PoolKind& kind) {
  return add_pool(kind, MemoryPool::Addresses::of_chunks);
}

std::shared_ptr<MemoryPool> StreamOrderedMemory::create_graph_pool(Place place) {
  auto pool = add_pool({place}, MemoryPool::Addresses::of_allocations);
  pool->release_threshold = ~std::uint64_t{0};  // it keeps what it has until it is trimmed
  return pool;
}

void StreamOrderedMemory::destroy_pool(const std::shared_ptr<MemoryPool>& pool) noexcept {
  pool->destroyed = true;
  forget_if_unused(pool);
}

void StreamOrderedMemory::forget_if_unused(const std::shared_ptr<MemoryPool>& pool) noexcept {
  if (!pool->destroyed || pool->allocations != 0) return;
  pool->give_back_all();
  if (pool->shared_id != 0 && sources_.shared_pool_ends) sources_.shared_pool_ends(pool->shared_id);
  std::erase(pools_, std::shared_ptr<MemoryPool>(pool));
}

// Allocations of pools follow each other closely; large ones of graphs have pages of their own.
std::uint64_t StreamOrderedMemory::alignment_for(const PoolAllocation& allocation) const {
  return allocation.graph && allocation.bytes > largest_small ? sources_.granularity : small_alignment;
}

// What the allocation takes of its pool, and of the addresses if it is a graph's; less than it has bytes if there is no
// such number.
std::uint64_t StreamOrderedMemory::taken_by(const PoolAllocation& allocation) {
  return round_up(allocation.bytes, small_alignment);
}

Answer StreamOrderedMemory::out_of_memory(const MemoryPool& pool, std::uint64_t bytes) const {
  return {CUDA_ERROR_OUT_OF_MEMORY, Rule::pool_capacity,
          fmt::format("{} bytes asked; the pool has {} in use of {} reserved, may reserve {}, and {} are free", bytes,
                      pool.used.current(), pool.reserved().current(),
                      pool.kind().max_bytes == 0 ? sources_.store.total(pool.place()) : pool.kind().max_bytes,
                      sources_.store.free(pool.place()))};
}

// Bytes of an allocation that was freed, by a free that has not run: its first ones, so that whoever has them has its
// address. What comes later in the stream of the free may have them at once; another stream has to wait for the free.
bool StreamOrderedMemory::take_over(PoolAllocation& allocation, std::uint64_t bytes, StreamId stream, TakeOver which,
                                    Signal* wait_for) {
  const std::uint64_t alignment = alignment_for(allocation);
  if (allocation.pool->take_resting(bytes, alignment, stream, allocation.extent)) return true;
  if (freeing_ == 0) return false;
  const auto serves = [&](const auto& entry) {
    const PoolAllocation& freed = entry.second;
    return freed.free_token != 0 && !freed.graph && freed.pool == allocation.pool && freed.extent.bytes >= bytes &&
           freed.extent.begin % alignment == 0 && (which == TakeOver::any_stream || comes_after_free(stream, freed));
  };
  auto found = std::find_if(passed_on_.begin(), passed_on_.end(), serves);  // what is left of one
  const bool first = found == passed_on_.end();
  if (first) found = std::find_if(allocations_.begin(), allocations_.end(), serves);
  if (first && found == allocations_.end()) return false;
  PoolAllocation& freed = found->second;
  allocation.extent = freed.pool->split(freed.extent, bytes);
  if (freed.freed_in != stream) *wait_for = freed.freed;
  if (freed.extent.bytes == 0) --freeing_;
  if (first) {
    auto node = allocations_.extract(found);
    node.key() = node.mapped().free_token;
    passed_on_.insert(std::move(node));
  }
  return true;
}

// Whether what comes next in the stream comes after the free by itself.
bool StreamOrderedMemory::comes_after_free(StreamId stream, const PoolAllocation& freed) const {
  if (freed.freed_in == stream) return true;
  const auto known = before_streams_.find(stream);
  if (!freed.pool->follow_event_dependencies || known == before_streams_.end()) return false;
  const auto frees = known->second.find(freed.freed_in);
  return frees != known->second.end() && freed.free_token < frees->second;
}

void StreamOrderedMemory::note_record(std::uint64_t event, StreamId stream) noexcept try {
  if (freeing_ == 0) {  // all that is known is of no use any more
    before_events_.clear();
    before_streams_.clear();
    return;
  }
  FreesBefore& before = before_events_[event];
  const auto known = before_streams_.find(stream);
  before = known == before_streams_.end() ? FreesBefore{} : known->second;
  before[stream] = next_id_;
} catch (const std::bad_alloc&) {
  before_events_.erase(event);  // what is not known orders nothing
}

void StreamOrderedMemory::note_wait(StreamId stream, std::uint64_t event) noexcept try {
  const auto known = before_events_.find(event);
  if (freeing_ == 0 || known == before_events_.end()) return;
  FreesBefore& before = before_streams_[stream];
  for (const auto& [other, token] : known->second) before[other] = std::max(before[other], token);
} catch (const std::bad_alloc&) {
  return;  // what is known is true
}

Answer StreamOrderedMemory::find_bytes(PoolAllocation& allocation, StreamId stream, Signal* wait_for) {
  MemoryPool& pool = *allocation.pool;
  const std::uint64_t alignment = alignment_for(allocation);
  const std::uint64_t bytes = taken_by(allocation);
  if (bytes < allocation.bytes) return out_of_memory(pool, allocation.bytes);
  if (take_over(allocation, bytes, stream, TakeOver::own_stream, wait_for) ||
      pool.take(bytes, alignment, allocation.extent))
    return {};
  if (pool.allow_internal_dependencies && take_over(allocation, bytes, stream, TakeOver::any_stream, wait_for))
    return {};
  return out_of_memory(pool, allocation.bytes);
}

Answer StreamOrderedMemory::allocate(CUdeviceptr* address, std::uint64_t bytes, const std::shared_ptr<MemoryPool>& pool,
                                     StreamId stream, Signal* wait_for) {
  // What needs memory comes first, so that a failure leaves everything as it was.
  Allocations made;
  PoolAllocation& allocation = made[0];
  allocation.bytes = bytes;
  allocation.pool = pool;
  allocation.freed = std::make_shared<std::atomic<bool>>(false);
  try {
    if (Answer refused = find_bytes(allocation, stream, wait_for); !refused.ok()) return refused;
  } catch (...) {
    pool->release_above_threshold();  // a chunk that was taken for it
    throw;
  }
  allocation.address = allocation.extent.begin;
  allocation.id = next_id_++;
  pool->used.add(bytes);
  ++pool->allocations;
  *address = allocation.address;
  auto node = made.extract(made.begin());
  node.key() = *address;
  allocations_.insert(std::move(node));
  return {};
}

// What needs memory comes first here, too.
Answer StreamOrderedMemory::import(CUdeviceptr* address, const std::shared_ptr<MemoryPool>& pool,
                                   const std::vector<Allocation*>& memory, std::uint64_t offset, std::uint64_t bytes) {
  Allocations made;
  PoolAllocation& allocation = made[0];
  allocation.bytes = bytes;
  allocation.pool = pool;
  allocation.freed = std::make_shared<std::atomic<bool>>(false);
  if (!pool->take_imported(memory, offset, taken_by(allocation), allocation.extent))
    return {CUDA_ERROR_INVALID_VALUE, Rule::pool_shared,
            "the allocation, or one that had its bytes before, was imported here and not freed"};
  allocation.address = *address = allocation.extent.begin;
  allocation.id = next_id_++;
  pool->used.add(bytes);
  ++pool->allocations;
  auto node = made.extract(made.begin());
  node.key() = *address;
  allocations_.insert(std::move(node));
  return {};
}

const PoolAllocation* StreamOrderedMemory::imported_as(const MemoryPool& pool, const std::vector<Allocation*>& memory,
                                                       std::uint64_t offset, std::uint64_t bytes) const {
  const auto where = pool.imported_at(memory);
  const auto found = where ? allocations_.find(*where + offset) : allocations_.end();
  const bool same = found != allocations_.end() && found->second.bytes == bytes && found->second.free_token == 0;
  return same ? &found->second : nullptr;
}

const PoolAllocation* StreamOrderedMemory::find_live(CUdeviceptr address) const {
  const auto found = allocations_.find(address);
  return found == allocations_.end() || found->second.free_token != 0 ? nullptr : &found->second;
}

Answer StreamOrderedMemory::begin_free(CUdeviceptr address, StreamId stream, std::uint64_t* token) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.free_token != 0) return no_allocation(address);
  PoolAllocation& allocation = found->second;
  if (allocation.graph) {  // which a later launch may allocate again before this free has run
    *token = allocation.id;
    return begin_graph_free(address, allocation.id);
  }
  *token = allocation.free_token = next_id_++;
  allocation.freed_in = stream;
  allocation.pool->used.subtract(allocation.bytes);
  ++freeing_;
  return {};
}

// The driver gives back what the pool does not use, and counts the bytes as in use for ever.
Answer StreamOrderedMemory::free_now(CUdeviceptr address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return no_allocation(address);
  const std::shared_ptr<MemoryPool> pool = found->second.pool;
  const std::uint64_t bytes = found->second.graph ? 0 : found->second.bytes;
  std::uint64_t token = 0;
  if (Answer refused = begin_free(address, 0, &token); !refused.ok()) return refused;
  finish_free(address, token);
  pool->used.add(bytes);
  pool->release_above_threshold();
  return {};
}

void StreamOrderedMemory::cancel_free(CUdeviceptr address, std::uint64_t token) noexcept {
  if (passed_on_.contains(token)) return finish_free(address, token);  // somebody else has the bytes: too late
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  PoolAllocation& allocation = found->second;
  if (allocation.graph) return cancel_graph_free(address, token);
  if (allocation.free_token != token) return;
  allocation.free_token = 0;
  allocation.pool->used.add(allocation.bytes);
  --freeing_;
}

void StreamOrderedMemory::finish_free(CUdeviceptr address, std::uint64_t token) noexcept {
  if (const auto passed_on = passed_on_.find(token); passed_on != passed_on_.end())
    return free_ran(passed_on_, passed_on);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  if (found->second.graph) return run_free_node(address, token);
  if (found->second.free_token != token) return;
  free_ran(allocations_, found);
}

void StreamOrderedMemory::free_ran(Allocations& among, Allocations::iterator found) noexcept {
  found->second.freed->store(true, std::memory_order_release);
  const auto pool = std::move(found->second.pool);
  if (found->second.extent.bytes != 0) {
    pool->give_back_from(found->second.freed_in, found->second.extent);
    --freeing_;
  }
  among.erase(found);
  forget_allocation_of(pool);
}

void StreamOrderedMemory::forget_allocation_of(const std::shared_ptr<MemoryPool>& pool) noexcept {
  --pool->allocations;
  forget_if_unused(pool);
}

void StreamOrderedMemory::release_graph_bytes(PoolAllocation& allocation) noexcept {
  if (allocation.extent.bytes == 0) return;
  allocation.pool->give_back(allocation.extent);
  allocation.extent.bytes = 0;
}

void StreamOrderedMemory::erase_of_graph(Allocations::iterator found) noexcept {
  sources_.addresses.give_back(found->first, taken_by(found->second));
  const auto pool = std::move(found->second.pool);
  allocations_.erase(found);
  forget_allocation_of(pool);
}

Answer StreamOrderedMemory::promise(CUdeviceptr* address, std::uint64_t bytes,
                                    const std::shared_ptr<MemoryPool>& pool) {
  Allocations made;
  PoolAllocation& allocation = made[0];
  allocation.bytes = bytes;
  allocation.pool = pool;
  allocation.graph = true;
  allocation.live = false;
  allocation.owned = true;
  const std::uint64_t alignment = alignment_for(allocation);
  const std::uint64_t taken = taken_by(allocation);
  if (bytes > sources_.store.total(pool->place())) return out_of_memory(*pool, bytes);
  const auto where = taken < bytes || taken == 0
                         ? std::nullopt
                         : sources_.addresses.take(taken, alignment, round_up(next_address_, alignment));
  if (!where)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space,
            fmt::format("{} bytes asked, the largest free piece of addresses has {}", bytes,
                        sources_.addresses.largest_free_piece())};
  allocation.address = *address = *where;
  allocation.id = next_id_++;
  next_address_ = *where + taken;
  ++pool->allocations;
  auto node = made.extract(made.begin());
  node.key() = *where;
  allocations_.insert(std::move(node));
  return {};
}

StreamOrderedMemory::Allocations::iterator StreamOrderedMemory::find_of_graph(CUdeviceptr address,
                                                                              std::uint64_t id) noexcept {
  const auto found = allocations_.find(address);
  return found != allocations_.end() && found->second.graph && found->second.id == id ? found : allocations_.end();
}

Answer StreamOrderedMemory::check_free_node(CUdeviceptr address, std::uint64_t* id) const {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || !found->second.graph)
    return {CUDA_ERROR_INVALID_VALUE, Rule::graph_memory, fmt::format("{:#x} is no allocation of a graph", address)};
  *id = found->second.id;
  return {};
}

Answer StreamOrderedMemory::begin_launch(CUdeviceptr address, bool reuse, bool* begun) {
  PoolAllocation& allocation = allocations_.at(address);
  *begun = false;
  if (allocation.launches > allocation.frees) {
    if (reuse) return {};
    return {CUDA_ERROR_INVALID_VALUE, Rule::graph_memory,
            fmt::format("{:#x} of the launch before was not freed", address)};
  }
  if (allocation.extent.bytes == 0) {
    const std::uint64_t bytes = taken_by(allocation);
    if (!allocation.pool->take(bytes, alignment_for(allocation), allocation.extent))
      return out_of_memory(*allocation.pool, allocation.bytes);
  }
  ++allocation.launches;
  *begun = true;
  return {};
}

void StreamOrderedMemory::count_launch(CUdeviceptr address) noexcept {
  if (const auto found = allocations_.find(address); found != allocations_.end()) count_graph_use(*found->second.pool);
}

void StreamOrderedMemory::cancel_launch(CUdeviceptr address) noexcept {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  if (--found->second.launches == 0) release_graph_bytes(found->second);
}

Answer StreamOrderedMemory::begin_graph_free(CUdeviceptr address, std::uint64_t id) {
  const auto found = find_of_graph(address, id);
  if (found == allocations_.end() || found->second.launches <= found->second.frees)
    return {CUDA_ERROR_INVALID_VALUE, Rule::graph_memory,
            fmt::format("{:#x} was allocated by no launch that leaves it, or was freed", address)};
  ++found->second.frees;
  return {};
}

void StreamOrderedMemory::cancel_graph_free(CUdeviceptr address, std::uint64_t id) noexcept {
  if (const auto found = find_of_graph(address, id); found != allocations_.end()) --found->second.frees;
}

void StreamOrderedMemory::run_allocation_node(CUdeviceptr address) noexcept {
  if (const auto found = allocations_.find(address); found != allocations_.end())
    found->second.live = found->second.extent.bytes != 0;  // it may have been freed before
}

void StreamOrderedMemory::run_free_node(CUdeviceptr address, std::uint64_t id) noexcept {
  const auto found = find_of_graph(address, id);
  if (found == allocations_.end()) return;
  PoolAllocation& allocation = found->second;
  allocation.live = false;
  if (allocation.frees > 0) --allocation.frees;
  if (allocation.launches > 0 && --allocation.launches == 0) release_graph_bytes(allocation);
  if (allocation.launches == 0 && !allocation.owned) erase_of_graph(found);
}

void StreamOrderedMemory::forget_promise(CUdeviceptr address) noexcept {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  PoolAllocation& allocation = found->second;
  allocation.owned = false;
  if (allocation.live) return;
  release_graph_bytes(allocation);
  erase_of_graph(found);
}

const PoolAllocation* StreamOrderedMemory::find(CUdeviceptr address) const {
  return containing(address, 1);
}

// Work that was submitted before a free may touch all of what was freed, though it has been passed on in part.
const PoolAllocation* StreamOrderedMemory::containing(CUdeviceptr address, std::uint64_t bytes) const {
  const auto holds = [&](const PoolAllocation& allocation) {
    const std::uint64_t offset = address - allocation.address;
    return offset < allocation.bytes && bytes <= allocation.bytes - offset;
  };
  const auto after = allocations_.upper_bound(address);
  if (after != allocations_.begin() && holds(std::prev(after)->second)) return &std::prev(after)->second;
  const auto found =
      std::find_if(passed_on_.begin(), passed_on_.end(), [&](const auto& entry) { return holds(entry.second); });
  return found == passed_on_.end() ? nullptr : &found->second;
}

bool StreamOrderedMemory::promised(CUdeviceptr address, std::uint64_t bytes) const {
  const PoolAllocation* allocation = containing(address, bytes);
  return allocation != nullptr && !allocation->live;
}

bool StreamOrderedMemory::awaited(CUdeviceptr address, std::uint64_t bytes) const {
  const PoolAllocation* allocation = containing(address, bytes);
  return allocation != nullptr && !allocation->live && allocation->launches > allocation->frees;
}

Answer StreamOrderedMemory::resolve(CUdeviceptr address, std::uint64_t bytes, Accessor who, bool write,
                                    std::vector<Segment>& segments) const {
  const PoolAllocation* allocation = containing(address, bytes);
  if (allocation == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::access_needed,
            fmt::format("{:#x} + {} is not inside one allocation", address, bytes)};
  if (!allocation->live)
    return {CUDA_ERROR_INVALID_VALUE, Rule::graph_memory,
            fmt::format("{:#x} is touched outside the span from its allocation node to its free", address)};
  if (!allocation->pool->rights.allow(who, write))
    return {CUDA_ERROR_INVALID_VALUE, Rule::pool_access,
            fmt::format("the pool of {:#x} was not opened to {}", address,
                        who.is_host() ? std::string("the host") : fmt::format("device {}", who.ordinal()))};
  const CUdeviceptr begin = allocation->graph ? allocation->extent.begin + (address - allocation->address) : address;
  std::uint64_t found = 0;
  allocation->pool->for_each_piece({begin, bytes},
                                   [&](const PoolChunk& chunk, std::uint64_t offset, std::uint64_t of_chunk) {
                                     segments.push_back({chunk.memory, offset, of_chunk});
                                     found += of_chunk;
                                   });
  if (found == bytes) return {};
  return {CUDA_ERROR_INVALID_VALUE, Rule::access_needed,
          fmt::format("{:#x} was freed, and its pool has given the memory back", address)};
}

bool StreamOrderedMemory::give_back_unused(Place place) noexcept {
  bool any = false;
  for (const auto& pool : pools_) {
    const Place of_pool = pool->place();
    if (of_pool.kind != place.kind || (!place.is_host() && of_pool.device != place.device)) continue;
    any = pool->give_back_unused() || any;
  }
  return any;
}

void StreamOrderedMemory::host_synchronized_with(StreamId stream) noexcept {
  for (const auto& pool : pools_) pool->observe(stream);
  release_above_thresholds();
}

void StreamOrderedMemory::host_synchronized_with_all() noexcept {
  for (const auto& pool : pools_) pool->observe_all();
  release_above_thresholds();
}

void StreamOrderedMemory::release_above_thresholds() noexcept {
  for (const auto& pool : pools_) pool->release_above_threshold();
}

}  // namespace cuvmm::emulator::model
