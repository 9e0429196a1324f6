// Random walks over shapes, every step of which may fail anywhere: they must always be what a simple model says. On the
// emulated driver and on GPUs.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "cuvmm/cuvmm.hpp"
#include "shapes/sleeper_walk.hpp"
#include "shapes/walk_world.hpp"

namespace cuvmm::test {

// One walk: a buffer that grows, shrinks, moves and has aliases, a ring, arrays over all devices, and ranges that
// sleep.
class ShapeWalk {
 public:
  ShapeWalk(const WalkWorld& world, unsigned seed) : world_(world), random_(seed) {
    options_.capacity = (1 + draw(6)) * page;
    options_.grants = {{world_.devices[0], AccessRights::read_write}};
    if (world_.devices.size() > 1) options_.grants.push_back({world_.devices[1], AccessRights::read});
    const ChunkPolicy policies[] = {ChunkPolicy::exact(), ChunkPolicy::fixed(page), ChunkPolicy::geometric(4 * page),
                                    ChunkPolicy::bounded(0.3)};
    options_.chunks = policies[draw(std::size(policies))];
    options_.source = PhysicalSource::create(world_.driver, {.budgets = {}, .recycle_limit = draw(2) * 8 * page});
    if (draw(2) == 0) options_.retire_queue = RetireQueue::create(world_.driver);
    buffer_.emplace(DeviceBuffer::create(world_.driver, options_));
    sleepers_.emplace(world_, options_, static_cast<unsigned>(random_()));
  }

  void step() {
    if (draw(3) == 0) return sleepers_->step();
    const bool fault = maybe_fault();
    switch (draw(10)) {
      case 0:
      case 1:
      case 2:
        return resize(buffer_->size() + 1 + draw(3 * page), fault);
      case 3:
        return resize(draw(buffer_->size() + 1), fault);
      case 4:
        return shrink(fault);
      case 5:
        return move(fault);
      case 6:
        return alias(fault);
      case 7:
        return close(fault);
      case 8:
        return use_ring(fault);
      default:
        return stitch(fault);
    }
  }

  // The content is right, at each address.
  void check() {
    ASSERT_EQ(buffer_->size(), size_);
    ASSERT_GE(buffer_->capacity(), size_);
    for (std::size_t i = 0; i < tags_.size(); ++i) {
      ASSERT_EQ(read(buffer_->address() + i * page), tags_[i]) << "page " << i;
      for (const AccessGrant& each : options_.grants)
        ASSERT_EQ(world_.rights(buffer_->address() + i * page, each.location), each.rights);
    }
    const auto former = buffer_->former_addresses();
    ASSERT_EQ(former.size(), pages_when_left_.size());
    for (std::size_t each = 0; each < former.size(); ++each)
      for (std::size_t i = 0; i < std::min(tags_.size(), pages_when_left_[each]); ++i)
        ASSERT_EQ(read(former[each] + i * page), tags_[i]) << "former address " << each << ", page " << i;
    for (const Alias& each : aliases_) ASSERT_EQ(read(each.range.address()), each.tag);
    sleepers_->check();
  }

 private:
  struct Alias {
    MappedRange range;
    std::uint64_t tag = 0;
  };

  std::size_t draw(std::size_t below) { return random_() % below; }

  // A fault at one of the next calls, in two of three steps. What a queue cannot unmap is lost, and reported; so there
  // unmapping does not fail.
  bool maybe_fault() {
    if (draw(3) == 0) return false;
    constexpr EntryPoint points[] = {EntryPoint::cuMemCreate, EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess,
                                     EntryPoint::cuMemAddressReserve, EntryPoint::cuMemUnmap};
    world_.fail(points[draw(std::size(points) - (options_.retire_queue ? 1 : 0))], 1 + draw(5),
                draw(2) == 0 ? abi::CUDA_ERROR_UNKNOWN : abi::CUDA_ERROR_OUT_OF_MEMORY);
    return true;
  }

  void write(DeviceAddress address, std::uint64_t tag) const { world_.write(address, tag); }
  [[nodiscard]] std::uint64_t read(DeviceAddress address) const { return world_.read(address); }

  // The model follows; pages that are new get a tag, and those that aliases show keep theirs until then.
  void note_size(std::size_t size) {
    size_ = size;
    tags_.resize(std::min(tags_.size(), (size + page - 1) / page));
    while (tags_.size() * page < size) {
      const DeviceAddress address = buffer_->address() + tags_.size() * page;
      tags_.push_back(++last_tag_);
      write(address, last_tag_);
      for (Alias& each : aliases_) each.tag = read(each.range.address());
    }
  }
  void note_a_move(DeviceAddress before, std::size_t capacity_before) {
    if (buffer_->address() == before || options_.retire_queue) return;
    pages_when_left_.push_back(capacity_before / page);
  }

  void resize(std::size_t size, bool fault) {
    const DeviceAddress before = buffer_->address();
    const std::size_t capacity = buffer_->capacity();
    const auto resized = buffer_->try_resize(size);
    world_.faults.clear();
    ASSERT_TRUE(resized || fault) << resized.failure().message();
    if (!resized) {
      ASSERT_EQ(buffer_->address(), before);
      ASSERT_EQ(buffer_->capacity(), capacity);
      return;
    }
    note_a_move(before, capacity);
    note_size(size);
  }

  void shrink(bool fault) {
    const auto shrunk = buffer_->try_shrink_to_fit();
    world_.faults.clear();
    ASSERT_TRUE(shrunk || fault) << shrunk.failure().message();
    pages_when_left_.resize(buffer_->former_addresses().size());
    ASSERT_TRUE(!shrunk || pages_when_left_.empty());
    if (!pages_when_left_.empty()) pages_when_left_.back() = 0;  // which may be unmapped in part
  }

  // Its addresses end, and those behind are taken.
  void move(bool fault) {
    const auto taken =
        AddressReservation::try_create(world_.driver, page, 0, buffer_->address() + buffer_->address_capacity());
    resize(buffer_->address_capacity() + 1 + draw(page), fault);
  }

  void alias(bool fault) {
    world_.faults.clear();
    if (aliases_.size() > 2) aliases_.pop_front();
    const std::size_t at = draw(buffer_->capacity() + 1);
    const SharedPhysicalMemory memory = buffer_->range().memory_at(at);
    if (!memory) return;
    MappedRangeOptions options;
    options.capacity = 64 * page;
    auto range = MappedRange::create(world_.driver, options);
    if (fault) world_.fail(draw(2) == 0 ? EntryPoint::cuMemMap : EntryPoint::cuMemSetAccess);
    const std::vector<SharedPhysicalMemory> twice{memory, memory};
    const auto mapped = range.try_append(twice);
    world_.faults.clear();
    ASSERT_EQ(mapped.has_value(), !fault);
    if (fault) return;
    const std::uint64_t tag = read(range.address());
    ASSERT_EQ(read(range.address() + memory.size()), tag);
    aliases_.push_back({std::move(range), tag});
  }

  // And begins anew.
  void close(bool fault) {
    try {
      buffer_->close();
    } catch (const Error& error) {
      world_.faults.clear();
      ASSERT_TRUE(fault) << error.what();
      pages_when_left_.clear();
      buffer_->close();
    }
    world_.faults.clear();
    buffer_.emplace(DeviceBuffer::create(world_.driver, options_));
    size_ = 0;
    tags_.clear();
    pages_when_left_.clear();
  }

  void use_ring(bool fault) {
    if (!ring_) {
      auto made = RingBuffer::try_create(world_.driver, {.bytes = page, .source = options_.source});
      world_.faults.clear();
      ASSERT_TRUE(made || fault) << made.failure().message();
      if (!made) return;
      ring_.emplace(std::move(made).value());
      const std::size_t begin = draw(page);
      ring_->commit(begin);
      ring_->release(begin);
    }
    world_.faults.clear();
    std::vector<std::byte> content(draw(page));
    auto state = static_cast<std::uint32_t>(random_());
    for (std::byte& each : content) each = static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 24);
    const std::size_t written = ring_->write(content);
    in_ring_.insert(in_ring_.end(), content.begin(), content.begin() + static_cast<std::ptrdiff_t>(written));
    std::vector<std::byte> received(draw(page));
    received.resize(ring_->read(received));
    ASSERT_TRUE(std::equal(received.begin(), received.end(), in_ring_.begin()));
    in_ring_.erase(in_ring_.begin(), in_ring_.begin() + static_cast<std::ptrdiff_t>(received.size()));
    if (draw(4) != 0) return;
    ring_->close();
    ring_.reset();
    in_ring_.clear();
  }

  void stitch(bool fault) {
    const auto made =
        StitchedMemory::try_create(world_.driver, 1 + draw(8 * page),
                                   {.locations = {world_.devices.rbegin(), world_.devices.rend()},
                                    .layout = draw(2) == 0 ? StitchedLayout::block() : StitchedLayout::cyclic(page),
                                    .source = options_.source});
    world_.faults.clear();
    ASSERT_TRUE(made || fault) << made.failure().message();
    if (!made) return;
    for (const StitchedPart& each : made->parts()) write(made->address() + each.offset, each.offset + 1);
    for (const StitchedPart& each : made->parts()) ASSERT_EQ(read(made->address() + each.offset), each.offset + 1);
  }

  WalkWorld world_;
  std::mt19937 random_;
  MappedRangeOptions options_;
  std::optional<DeviceBuffer> buffer_;
  std::optional<SleeperWalk> sleepers_;
  std::optional<RingBuffer> ring_;
  std::deque<std::byte> in_ring_;
  std::deque<Alias> aliases_;
  std::size_t size_ = 0;
  std::vector<std::uint64_t> tags_;  // of each page of the content
  std::vector<std::size_t> pages_when_left_;
  std::uint64_t last_tag_ = 0;
};

}  // namespace cuvmm::test
