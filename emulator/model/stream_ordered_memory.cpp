#include "emulator/model/stream_ordered_memory.hpp"

#include <fmt/format.h>

#include <iterator>
#include <optional>

namespace cuvmm::emulator::model {
namespace {

constexpr std::uint64_t small_alignment = 512;
constexpr std::uint64_t page_bytes = 4096;  // of the host, which maps nothing smaller
constexpr std::uint64_t largest_small = std::uint64_t{1} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Answer no_allocation(CUdeviceptr address) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::pool_pointer, fmt::format("{:#x} is no live allocation", address)};
}

}  // namespace

std::shared_ptr<MemoryPool> StreamOrderedMemory::create_pool(Place place, std::uint64_t max_bytes) {
  auto pool = std::make_shared<MemoryPool>(store_, place, granularity_, max_bytes);
  const auto open_to = [&](Accessor who) { pool->rights.set(who, abi::CU_MEM_ACCESS_FLAGS_PROT_READWRITE); };
  if (place.is_host()) {
    open_to(Accessor::host());
    for (int device = 0; device < max_devices; ++device) open_to(Accessor::device(device));
  } else {
    open_to(Accessor::device(place.device));
  }
  pools_.push_back(pool);
  return pool;
}

void StreamOrderedMemory::destroy_pool(const std::shared_ptr<MemoryPool>& pool) noexcept {
  pool->destroyed = true;
  forget_if_unused(pool);
}

void StreamOrderedMemory::forget_if_unused(const std::shared_ptr<MemoryPool>& pool) noexcept {
  if (!pool->destroyed || pool->allocations != 0) return;
  pool->trim(0);
  std::erase(pools_, std::shared_ptr<MemoryPool>(pool));
}

std::uint64_t StreamOrderedMemory::alignment_for(const PoolAllocation& allocation) const {
  if (allocation.bytes > largest_small) return granularity_;
  return allocation.pool->place().is_host() ? page_bytes : small_alignment;
}

// What the allocation takes of its pool and of the addresses; less than it has bytes if there is no such number.
std::uint64_t StreamOrderedMemory::taken_by(const PoolAllocation& allocation) {
  return round_up(allocation.bytes, allocation.pool->place().is_host() ? page_bytes : small_alignment);
}

Answer StreamOrderedMemory::out_of_memory(const MemoryPool& pool, std::uint64_t bytes) const {
  return {CUDA_ERROR_OUT_OF_MEMORY, Rule::pool_capacity,
          fmt::format("{} bytes asked; the pool has {} in use of {} reserved, may reserve {}, and {} are free", bytes,
                      pool.used.current(), pool.reserved().current(),
                      pool.max_bytes() == 0 ? store_.ledger().total(pool.place()) : pool.max_bytes(),
                      store_.ledger().free(pool.place()))};
}

// An extent whose allocation was freed, by a free that has not run. What comes later in the stream of the free may have
// it at once; another stream has to wait for the free.
bool StreamOrderedMemory::take_over(PoolAllocation& allocation, std::uint64_t bytes, StreamId stream, TakeOver which,
                                    Signal* wait_for) {
  const std::uint64_t most = which == TakeOver::own_stream ? 2 * bytes : ~std::uint64_t{0};
  if (allocation.pool->take_resting(bytes, most, stream, allocation.extent)) return true;
  if (freeing_ == 0) return false;
  for (auto& [address, freed] : allocations_) {
    const bool fits = freed.free_token != 0 && !freed.passed_on && !freed.graph && freed.pool == allocation.pool &&
                      freed.extent.bytes >= bytes && freed.extent.bytes <= most;
    if (!fits || (which == TakeOver::own_stream && freed.freed_in != stream)) continue;
    if (freed.freed_in != stream) *wait_for = freed.freed;
    freed.passed_on = true;
    freed.pool->used.subtract(taken_by(freed));
    allocation.extent = freed.extent;
    return true;
  }
  return false;
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

// Takes addresses for the allocation and keeps it.
Answer StreamOrderedMemory::add(PoolAllocation allocation, CUdeviceptr* address) {
  Allocations made;
  const std::uint64_t alignment = alignment_for(allocation);
  const std::uint64_t bytes = taken_by(allocation);
  PoolAllocation& added = made[0] = std::move(allocation);
  const CUdeviceptr hint = round_up(next_address_, alignment);
  const auto where = bytes < added.bytes ? std::nullopt : addresses_.take(bytes, alignment, hint);
  if (!where)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space,
            fmt::format("{} bytes asked, the largest free piece of addresses has {}", added.bytes,
                        addresses_.largest_free_piece())};
  added.address = *where;
  added.id = next_id_++;
  if (added.extent.chunk != nullptr && added.pool->place().is_host() && !host_view_(added, true)) {
    addresses_.give_back(*where, bytes);
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::operating_system, "the memory cannot be mapped into the process"};
  }
  next_address_ = *where + bytes;
  ++added.pool->allocations;
  if (added.extent.chunk != nullptr) added.pool->used.add(bytes);
  auto node = made.extract(made.begin());
  node.key() = *where;
  allocations_.insert(std::move(node));
  *address = *where;
  return {};
}

Answer StreamOrderedMemory::allocate(CUdeviceptr* address, std::uint64_t bytes, const std::shared_ptr<MemoryPool>& pool,
                                     StreamId stream, Signal* wait_for) {
  PoolAllocation allocation;
  allocation.bytes = bytes;
  allocation.pool = pool;
  allocation.freed = std::make_shared<std::atomic<bool>>(false);
  if (Answer refused = find_bytes(allocation, stream, wait_for); !refused.ok()) return refused;
  const PoolExtent extent = allocation.extent;
  try {
    Answer answer = add(std::move(allocation), address);
    if (!answer.ok()) give_up(pool, extent);
    return answer;
  } catch (...) {
    give_up(pool, extent);
    throw;
  }
}

// An extent that was found and cannot be used goes back to where it was.
void StreamOrderedMemory::give_up(const std::shared_ptr<MemoryPool>& pool, const PoolExtent& extent) noexcept {
  for (auto& [address, freed] : allocations_) {
    const bool same = freed.passed_on && freed.extent.chunk == extent.chunk && freed.extent.offset == extent.offset;
    if (!same) continue;
    freed.passed_on = false;
    pool->used.add(taken_by(freed));
    return;
  }
  pool->give_back(extent);
}

Answer StreamOrderedMemory::begin_free(CUdeviceptr address, StreamId stream, std::uint64_t* token) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.free_token != 0) return no_allocation(address);
  PoolAllocation& allocation = found->second;
  if (allocation.graph) {  // which a later launch may allocate again before this free has run
    *token = next_id_++;
    return begin_graph_free(address);
  }
  *token = allocation.free_token = next_id_++;
  allocation.freed_in = stream;
  ++freeing_;
  return {};
}

void StreamOrderedMemory::cancel_free(CUdeviceptr address, std::uint64_t token) noexcept {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  PoolAllocation& allocation = found->second;
  if (allocation.graph) return cancel_graph_free(address);
  if (allocation.free_token != token) return;
  if (allocation.passed_on) return finish_free(address, token);  // somebody else has the bytes: too late
  allocation.free_token = 0;
  --freeing_;
}

void StreamOrderedMemory::finish_free(CUdeviceptr address, std::uint64_t token) noexcept {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  PoolAllocation& allocation = found->second;
  if (allocation.graph) return run_free_node(address);
  if (allocation.free_token != token) return;
  allocation.free_token = 0;
  --freeing_;
  allocation.freed->store(true, std::memory_order_release);
  release_bytes(allocation);
  erase(found);
}

void StreamOrderedMemory::release_bytes(PoolAllocation& allocation) noexcept {
  if (allocation.extent.chunk == nullptr) return;
  if (allocation.pool->place().is_host()) (void)host_view_(allocation, false);
  if (!allocation.passed_on) {
    allocation.pool->used.subtract(taken_by(allocation));
    allocation.pool->give_back_from(allocation.freed_in, allocation.extent);
  }
  allocation.extent.chunk = nullptr;
}

void StreamOrderedMemory::erase(Allocations::iterator found) noexcept {
  PoolAllocation& allocation = found->second;
  addresses_.give_back(found->first, taken_by(allocation));
  const auto pool = allocation.pool;
  --pool->allocations;
  allocations_.erase(found);
  forget_if_unused(pool);
}

Answer StreamOrderedMemory::promise(CUdeviceptr* address, std::uint64_t bytes,
                                    const std::shared_ptr<MemoryPool>& pool) {
  PoolAllocation allocation;
  allocation.bytes = bytes;
  allocation.pool = pool;
  allocation.graph = true;
  allocation.live = false;
  allocation.owned = true;
  return add(std::move(allocation), address);
}

Answer StreamOrderedMemory::add_free_node(CUdeviceptr address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || !found->second.graph || found->second.free_node)
    return {CUDA_ERROR_INVALID_VALUE, Rule::graph_memory,
            fmt::format("{:#x} is no allocation of a graph, or one that a graph frees already", address)};
  found->second.free_node = true;
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
  if (allocation.extent.chunk == nullptr) {
    const std::uint64_t bytes = taken_by(allocation);
    if (!allocation.pool->take(bytes, alignment_for(allocation), allocation.extent))
      return out_of_memory(*allocation.pool, allocation.bytes);
    allocation.pool->used.add(bytes);
  }
  ++allocation.launches;
  *begun = true;
  return {};
}

void StreamOrderedMemory::cancel_launch(CUdeviceptr address) noexcept {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  if (--found->second.launches == 0) release_bytes(found->second);
}

Answer StreamOrderedMemory::begin_graph_free(CUdeviceptr address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.launches <= found->second.frees)
    return {CUDA_ERROR_INVALID_VALUE, Rule::graph_memory,
            fmt::format("{:#x} was allocated by no launch that leaves it, or was freed", address)};
  ++found->second.frees;
  return {};
}

void StreamOrderedMemory::cancel_graph_free(CUdeviceptr address) noexcept {
  if (const auto found = allocations_.find(address); found != allocations_.end()) --found->second.frees;
}

void StreamOrderedMemory::run_allocation_node(CUdeviceptr address) noexcept {
  if (const auto found = allocations_.find(address); found != allocations_.end()) found->second.live = true;
}

void StreamOrderedMemory::run_free_node(CUdeviceptr address) noexcept {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  PoolAllocation& allocation = found->second;
  allocation.live = false;
  if (allocation.frees > 0) --allocation.frees;
  if (allocation.launches > 0 && --allocation.launches == 0) release_bytes(allocation);
  if (allocation.launches == 0 && !allocation.owned) erase(found);
}

void StreamOrderedMemory::forget_promise(CUdeviceptr address) noexcept {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return;
  PoolAllocation& allocation = found->second;
  allocation.owned = false;
  if (allocation.live) return;
  release_bytes(allocation);
  erase(found);
}

const PoolAllocation* StreamOrderedMemory::find(CUdeviceptr address) const {
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const PoolAllocation& candidate = std::prev(after)->second;
  return address - candidate.address < candidate.bytes ? &candidate : nullptr;
}

bool StreamOrderedMemory::promised(CUdeviceptr address, std::uint64_t bytes) const {
  const PoolAllocation* allocation = find(address);
  return allocation != nullptr && !allocation->live && bytes <= allocation->bytes - (address - allocation->address);
}

Answer StreamOrderedMemory::resolve(CUdeviceptr address, std::uint64_t bytes, Accessor who, bool write,
                                    std::vector<Segment>& segments) const {
  const PoolAllocation* allocation = find(address);
  if (allocation == nullptr || bytes > allocation->bytes - (address - allocation->address))
    return {CUDA_ERROR_INVALID_VALUE, Rule::access_needed,
            fmt::format("{:#x} + {} is not inside one allocation", address, bytes)};
  if (!allocation->live)
    return {CUDA_ERROR_INVALID_VALUE, Rule::graph_memory,
            fmt::format("{:#x} is touched outside the span from its allocation node to its free", address)};
  if (!allocation->pool->rights.allow(who, write))
    return {CUDA_ERROR_INVALID_VALUE, Rule::pool_access,
            fmt::format("the pool of {:#x} was not opened to {}", address,
                        who.is_host() ? std::string("the host") : fmt::format("device {}", who.ordinal()))};
  segments.push_back(
      {allocation->extent.chunk->memory, allocation->extent.offset + (address - allocation->address), bytes});
  return {};
}

void StreamOrderedMemory::release_above_thresholds() noexcept {
  for (const auto& pool : pools_) pool->release_above_threshold();
}

}  // namespace cuvmm::emulator::model
