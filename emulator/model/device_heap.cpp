#include "emulator/model/device_heap.hpp"

#include <fmt/format.h>

#include <iterator>

namespace cuvmm::emulator::model {
namespace {

constexpr std::uint64_t small_alignment = 512;
constexpr std::uint64_t largest_small = std::uint64_t{1} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Answer DeviceHeap::add_block(std::uint64_t bytes, int device, ContextId owner, bool shared, CUdeviceptr* address) {
  const std::uint64_t whole = round_up(bytes, granularity_);
  const Place place = Place::on_device(device);
  Allocation* memory = whole < bytes ? nullptr : store_.create(place, whole, {});
  if (memory == nullptr)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::create_capacity,
            fmt::format("{} bytes asked, {} free of {} on device {}", bytes, store_.ledger().free(place),
                        store_.ledger().total(place), device)};
  const auto where = addresses_.take(whole, granularity_);
  if (!where) {
    store_.drop_reference(*memory);
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space,
            fmt::format("{} bytes asked, the largest free piece of addresses has {}", whole,
                        addresses_.largest_free_piece())};
  }
  Block block{memory, whole, device, owner, {}, shared, 0};
  if (shared) block.free[0] = whole;
  blocks_.emplace(*where, std::move(block));
  *address = *where;
  return {};
}

bool DeviceHeap::take_from_shared_block(std::uint64_t bytes, int device, ContextId owner, HeapAllocation& allocation) {
  for (auto& [base, block] : blocks_) {
    if (!block.shared || block.device != device || block.owner != owner) continue;
    for (auto piece = block.free.begin(); piece != block.free.end(); ++piece) {
      if (piece->second < bytes) continue;
      allocation.address = base + piece->first;
      allocation.block = base;
      if (piece->second > bytes) block.free.emplace(piece->first + bytes, piece->second - bytes);
      block.free.erase(piece);
      ++block.live;
      return true;
    }
  }
  return false;
}

Answer DeviceHeap::allocate(CUdeviceptr* address, std::uint64_t bytes, int device, ContextId owner) {
  HeapAllocation allocation{0, bytes, device, owner, 0};
  if (bytes <= largest_small) {
    const std::uint64_t rounded = round_up(bytes, small_alignment);
    if (!take_from_shared_block(rounded, device, owner, allocation)) {
      CUdeviceptr base = 0;
      if (Answer answer = add_block(granularity_, device, owner, true, &base); !answer.ok()) return answer;
      (void)take_from_shared_block(rounded, device, owner, allocation);
    }
  } else {
    if (Answer answer = add_block(bytes, device, owner, false, &allocation.address); !answer.ok()) return answer;
    allocation.block = allocation.address;
    blocks_.at(allocation.block).live = 1;
  }
  allocations_.emplace(allocation.address, allocation);
  *address = allocation.address;
  return {};
}

void DeviceHeap::release_block(std::map<CUdeviceptr, Block>::iterator block) {
  addresses_.give_back(block->first, block->second.bytes);
  Allocation* memory = block->second.memory;
  blocks_.erase(block);
  store_.drop_reference(*memory);
}

Answer DeviceHeap::free(CUdeviceptr address) {
  auto found = allocations_.find(address);
  if (found == allocations_.end())
    return {CUDA_ERROR_INVALID_VALUE, Rule::heap_pointer, fmt::format("{:#x} was not allocated by cuMemAlloc", address)};
  auto block = blocks_.find(found->second.block);
  if (block->second.shared) {
    auto& free = block->second.free;
    auto piece = free.emplace(address - block->first, round_up(found->second.bytes, small_alignment)).first;
    if (auto next = std::next(piece); next != free.end() && piece->first + piece->second == next->first) {
      piece->second += next->second;
      free.erase(next);
    }
    if (piece != free.begin())
      if (auto previous = std::prev(piece); previous->first + previous->second == piece->first) {
        previous->second += piece->second;
        free.erase(piece);
      }
  }
  allocations_.erase(found);
  if (--block->second.live == 0) release_block(block);
  return {};
}

void DeviceHeap::free_all_of(ContextId owner) {
  std::erase_if(allocations_, [&](const auto& entry) { return entry.second.owner == owner; });
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    auto next = std::next(block);
    if (block->second.owner == owner) release_block(block);
    block = next;
  }
}

const HeapAllocation* DeviceHeap::find(CUdeviceptr address) const {
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const HeapAllocation& candidate = std::prev(after)->second;
  return address - candidate.address < candidate.bytes ? &candidate : nullptr;
}

Answer DeviceHeap::resolve(CUdeviceptr address, std::uint64_t bytes, std::vector<Segment>& segments) const {
  const HeapAllocation* allocation = find(address);
  if (allocation == nullptr || bytes > allocation->bytes - (address - allocation->address))
    return {CUDA_ERROR_INVALID_VALUE, Rule::access_needed,
            fmt::format("{:#x} + {} is not inside one allocation", address, bytes)};
  segments.push_back({blocks_.at(allocation->block).memory, address - allocation->block, bytes});
  return {};
}

}  // namespace cuvmm::emulator::model
