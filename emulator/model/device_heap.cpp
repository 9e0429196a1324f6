#include "emulator/model/device_heap.hpp"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <utility>

namespace cuvmm::emulator::model {
namespace {

constexpr std::uint64_t small_alignment = 512;
constexpr std::uint64_t largest_small = std::uint64_t{1} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Answer DeviceHeap::add_block(std::uint64_t bytes, int device, ContextId owner, bool shared, Blocks::iterator* added) {
  const std::uint64_t whole = round_up(bytes, granularity_);
  const Place place = Place::on_device(device);
  Allocation* memory = whole < bytes ? nullptr : store_.create(place, whole, {});
  if (memory == nullptr)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::create_capacity,
            fmt::format("{} bytes asked, {} free of {} on device {}", bytes, store_.free(place), store_.total(place),
                        device)};
  const auto where = take_addresses(whole, *memory);
  if (!where)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space,
            fmt::format("{} bytes asked, the largest free piece of addresses has {}", whole,
                        addresses_.largest_free_piece())};
  try {
    *added = blocks_.emplace(*where, Block{memory, whole, device, owner, shared, AddressSpace(0, whole), 0}).first;
  } catch (...) {
    addresses_.give_back(*where, whole);
    store_.drop_reference(*memory);
    throw;
  }
  next_block_ = *where + whole;
  return {};
}

// Addresses for the memory, which goes if there are none.
std::optional<CUdeviceptr> DeviceHeap::take_addresses(std::uint64_t bytes, Allocation& memory) {
  std::optional<CUdeviceptr> where;
  try {
    where = addresses_.take(bytes, granularity_, next_block_);
  } catch (...) {
    store_.drop_reference(memory);
    throw;
  }
  if (!where) store_.drop_reference(memory);
  return where;
}

bool DeviceHeap::take_from(Blocks::iterator block, HeapAllocation& allocation) {
  const auto offset = block->second.room.take(round_up(allocation.bytes, small_alignment), small_alignment);
  if (!offset) return false;
  allocation.address = block->first + *offset;
  allocation.block = block->first;
  ++block->second.live;
  return true;
}

// Finds an address for the allocation.
Answer DeviceHeap::place(HeapAllocation& allocation) {
  Blocks::iterator added;
  if (allocation.bytes > largest_small) {
    Answer answer = add_block(allocation.bytes, allocation.device, allocation.owner, false, &added);
    if (!answer.ok()) return answer;
    allocation.address = allocation.block = added->first;
    added->second.live = 1;
    return {};
  }
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    const Block& candidate = block->second;
    if (candidate.shared && candidate.device == allocation.device && candidate.owner == allocation.owner &&
        take_from(block, allocation))
      return {};
  }
  Answer answer = add_block(granularity_, allocation.device, allocation.owner, true, &added);
  if (!answer.ok()) return answer;
  try {
    (void)take_from(added, allocation);
  } catch (...) {
    release_block(added);
    throw;
  }
  return {};
}

Answer DeviceHeap::allocate(CUdeviceptr* address, std::uint64_t bytes, int device, ContextId owner) {
  // What needs memory comes first, so that a failure leaves everything as it was.
  std::map<CUdeviceptr, HeapAllocation> made;
  HeapAllocation& allocation = made[0];
  allocation = {0, bytes, device, owner, 0, 0};
  if (Answer answer = place(allocation); !answer.ok()) return answer;
  *address = allocation.address;
  auto node = made.extract(made.begin());
  node.key() = *address;
  allocations_.insert(std::move(node));
  return {};
}

void DeviceHeap::release_block(Blocks::iterator block) noexcept {
  addresses_.give_back(block->first, block->second.bytes);
  Allocation* memory = block->second.memory;
  blocks_.erase(block);
  store_.drop_reference(*memory);
}

Answer DeviceHeap::free(CUdeviceptr address) {
  auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.opened > 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::heap_pointer,
            fmt::format("{:#x} was not allocated by cuMemAlloc", address)};
  remove(found);
  return {};
}

void DeviceHeap::remove(std::map<CUdeviceptr, HeapAllocation>::iterator allocation) noexcept {
  const auto block = blocks_.find(allocation->second.block);
  if (block->second.shared)
    block->second.room.give_back(allocation->first - block->first, round_up(allocation->second.bytes, small_alignment));
  allocations_.erase(allocation);
  if (--block->second.live == 0) release_block(block);
}

HeapAllocation* DeviceHeap::find_opened(const Segment& range, ContextId owner) {
  for (auto& [address, allocation] : allocations_)
    if (allocation.opened > 0 && allocation.owner == owner && address - allocation.block == range.offset &&
        blocks_.at(allocation.block).memory == range.allocation)
      return &allocation;
  return nullptr;
}

Answer DeviceHeap::open(CUdeviceptr* address, const Segment& range, ContextId owner) {
  if (HeapAllocation* const known = find_opened(range, owner)) {
    ++known->opened;
    *address = known->address;
    return {};
  }
  const std::uint64_t whole = range.allocation->bytes;
  const int device = range.allocation->place.device;
  const auto where = addresses_.take(whole, granularity_, next_block_);
  if (!where)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space,
            fmt::format("{} bytes asked, the largest free piece of addresses has {}", whole,
                        addresses_.largest_free_piece())};
  try {
    allocations_[*where + range.offset] = {*where + range.offset, range.bytes, device, owner, *where, 1};
    blocks_.emplace(*where, Block{range.allocation, whole, device, owner, false, AddressSpace(0, whole), 1});
  } catch (...) {
    allocations_.erase(*where + range.offset);
    addresses_.give_back(*where, whole);
    throw;
  }
  store_.add_reference(*range.allocation);
  *address = *where + range.offset;
  return {};
}

Answer DeviceHeap::close(CUdeviceptr address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.opened == 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::ipc_open, fmt::format("{:#x} was not opened from a handle", address)};
  if (--found->second.opened == 0) remove(found);
  return {};
}

void DeviceHeap::free_all_of(ContextId owner) noexcept {
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

std::optional<Segment> DeviceHeap::find_own(CUdeviceptr address) const {
  const HeapAllocation* const allocation = find(address);
  if (allocation == nullptr || allocation->opened > 0) return std::nullopt;
  return Segment{blocks_.at(allocation->block).memory, allocation->address - allocation->block, allocation->bytes};
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
