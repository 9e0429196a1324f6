#include "replay/caching_allocator.hpp"

#include "driver/call.hpp"

namespace cuvmm::replay {
namespace {

using driver::call;
using driver::EntryPoint;
using driver::try_call;

constexpr std::size_t unit = 512;
constexpr std::size_t small_limit = 1_MiB;
constexpr std::size_t small_segment = 2_MiB;
constexpr std::size_t medium_limit = 10_MiB;
constexpr std::size_t medium_segment = 20_MiB;
constexpr std::size_t segment_unit = 2_MiB;

std::size_t segment_bytes(std::size_t bytes) {
  if (bytes <= small_limit) return small_segment;
  if (bytes <= medium_limit) return medium_segment;
  return align_up(bytes, segment_unit);
}

// Whether what is left of a block is worth to be one.
bool is_worth_cutting(std::size_t left, std::size_t bytes) {
  return bytes <= small_limit ? left >= unit : left > small_limit;
}

}  // namespace

CachingAllocator::~CachingAllocator() {
  for (const auto& [address, bytes] : segments_) bench_.aside.interface().cuMemFree(address);
}

Result<CachingAllocator::Blocks::iterator> CachingAllocator::add_segment(std::size_t bytes, std::size_t shelf) {
  Address address = 0;
  auto done = try_call<EntryPoint::cuMemAlloc>(bench_.driver.interface(), &address, bytes);
  if (!done && done.failure().kind == ErrorKind::out_of_device_memory) {
    release_free_segments();
    done = try_call<EntryPoint::cuMemAlloc>(bench_.driver.interface(), &address, bytes);
  }
  if (!done) return done.failure();
  segments_.emplace(address, bytes);
  held_bytes_ += bytes;
  return blocks_.emplace(address, Block{bytes, shelf, address, false}).first;
}

Result<DeviceAddress> CachingAllocator::allocate(std::size_t asked, std::uint32_t stream) {
  const std::size_t bytes = align_up(asked, unit);
  const std::size_t shelf = 2 * std::size_t{stream} + (bytes <= small_limit ? 0 : 1);
  Blocks::iterator block;
  if (const auto found = free_[shelf].lower_bound({bytes, 0}); found != free_[shelf].end()) {
    block = blocks_.find(found->second);
    free_[shelf].erase(found);
  } else {
    auto added = add_segment(segment_bytes(bytes), shelf);
    if (!added) return added.failure();
    block = *added;
  }
  block->second.used = true;
  if (const std::size_t left = block->second.bytes - bytes; is_worth_cutting(left, bytes)) {
    block->second.bytes = bytes;
    blocks_.emplace(block->first + bytes, Block{left, shelf, block->second.segment, false});
    free_[shelf].emplace(left, block->first + bytes);
  }
  return DeviceAddress(block->first);
}

// Of a free block that lies on no shelf, with those neighbours of its segment that are free.
CachingAllocator::Blocks::iterator CachingAllocator::join(Blocks::iterator block) {
  const auto joins = [&](Blocks::iterator one, Blocks::iterator next) {
    return !next->second.used && !one->second.used && one->second.segment == next->second.segment;
  };
  if (const auto next = std::next(block); next != blocks_.end() && joins(block, next)) {
    free_[next->second.shelf].erase({next->second.bytes, next->first});
    block->second.bytes += next->second.bytes;
    blocks_.erase(next);
  }
  if (block == blocks_.begin()) return block;
  const auto before = std::prev(block);
  if (!joins(before, block)) return block;
  free_[before->second.shelf].erase({before->second.bytes, before->first});
  before->second.bytes += block->second.bytes;
  blocks_.erase(block);
  return before;
}

void CachingAllocator::free(DeviceAddress address, std::uint32_t /*stream*/) {
  const auto block = blocks_.find(address.value);
  block->second.used = false;
  const auto joined = join(block);
  free_[joined->second.shelf].emplace(joined->second.bytes, joined->first);
}

void CachingAllocator::release_free_segments() {
  for (Shelf& shelf : free_) {
    for (auto each = shelf.begin(); each != shelf.end();) {
      const auto segment = segments_.find(each->second);
      if (segment == segments_.end() || segment->second != each->first) {
        ++each;
        continue;
      }
      call<EntryPoint::cuMemFree>(bench_.driver.interface(), segment->first);
      held_bytes_ -= segment->second;
      blocks_.erase(segment->first);
      segments_.erase(segment);
      each = shelf.erase(each);
    }
  }
}

std::vector<Extent> CachingAllocator::held() const {
  std::vector<Extent> held;
  for (const auto& [address, bytes] : segments_) held.push_back({DeviceAddress(address), bytes});
  return held;
}

std::unique_ptr<Allocator> make_caching_allocator(const Bench& bench) {
  return std::make_unique<CachingAllocator>(bench);
}

}  // namespace cuvmm::replay
