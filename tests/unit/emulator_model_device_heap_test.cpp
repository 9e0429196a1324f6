#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "emulator/model/device_heap.hpp"
#include "emulator_model_store.hpp"

namespace cuvmm::emulator::model {
namespace {

constexpr std::uint64_t granule = std::uint64_t{2} << 20;
constexpr std::uint64_t memory_bytes = 16 * granule;

struct Heap {
  test::LedgerStore store{Ledger(2, memory_bytes, 0)};
  AddressSpace addresses{granule, 64 * granule};
  DeviceHeap heap{granule, store, addresses};

  CUdeviceptr allocate(std::uint64_t bytes, int device = 0, ContextId owner = 1) {
    CUdeviceptr address = 0;
    EXPECT_TRUE(heap.allocate(&address, bytes, device, owner).ok());
    return address;
  }
  [[nodiscard]] std::uint64_t used(int device = 0) const { return store.ledger().used(Place::on_device(device)); }
  [[nodiscard]] bool empty() const {
    return heap.live_allocations() == 0 && store.live_allocations() == 0 &&
           addresses.largest_free_piece() == addresses.total_bytes();
  }
};

TEST(DeviceHeap, LetsSmallAllocationsOfOneContextShareABlock) {
  Heap heap;
  const CUdeviceptr first = heap.allocate(1);
  const CUdeviceptr second = heap.allocate(1000);
  EXPECT_EQ(second, first + 512);
  EXPECT_EQ(first % 512, 0U);
  EXPECT_EQ(heap.used(), granule);
  (void)heap.allocate(1, 0, 2);
  EXPECT_EQ(heap.used(), 2 * granule) << "another context's";
  (void)heap.allocate(1, 1, 1);
  EXPECT_EQ(heap.used(1), granule) << "another device's";
}

TEST(DeviceHeap, ReusesTheRoomOfFreedNeighbours) {
  Heap heap;
  const CUdeviceptr pieces[] = {heap.allocate(granule / 2), heap.allocate(granule / 4), heap.allocate(granule / 4)};
  EXPECT_EQ(heap.used(), granule);
  EXPECT_TRUE(heap.heap.free(pieces[1]).ok());
  EXPECT_TRUE(heap.heap.free(pieces[2]).ok());
  EXPECT_EQ(heap.allocate(granule / 2), pieces[1]);
  EXPECT_EQ(heap.used(), granule);
}

TEST(DeviceHeap, DoesNotGiveOutAddressesAgainAtOnce) {
  Heap heap;
  const CUdeviceptr freed = heap.allocate(2 * granule);
  EXPECT_TRUE(heap.heap.free(freed).ok());
  EXPECT_NE(heap.allocate(granule / 2), freed);
  EXPECT_EQ(heap.heap.find(freed), nullptr);
}

TEST(DeviceHeap, GivesABlockBackWithItsLastAllocation) {
  Heap heap;
  const CUdeviceptr small = heap.allocate(10), large = heap.allocate(granule + 1);
  EXPECT_EQ(heap.used(), 3 * granule);
  EXPECT_TRUE(heap.heap.free(large).ok());
  EXPECT_EQ(heap.used(), granule);
  EXPECT_TRUE(heap.heap.free(small).ok());
  EXPECT_TRUE(heap.empty());
}

TEST(DeviceHeap, RefusesToFreeWhatItDidNotAllocate) {
  Heap heap;
  const CUdeviceptr address = heap.allocate(granule);
  for (const CUdeviceptr wrong : {CUdeviceptr{0}, address + 1, address + granule}) {
    const Answer answer = heap.heap.free(wrong);
    EXPECT_EQ(answer.code, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(answer.rule, Rule::heap_pointer);
  }
  EXPECT_TRUE(heap.heap.free(address).ok());
  EXPECT_EQ(heap.heap.free(address).code, CUDA_ERROR_INVALID_VALUE) << "twice";
}

TEST(DeviceHeap, RefusesMoreThanThereIs) {
  Heap heap;
  CUdeviceptr address = 0;
  for (const std::uint64_t bytes : {memory_bytes + 1, ~std::uint64_t{0}, ~std::uint64_t{0} - granule}) {
    const Answer answer = heap.heap.allocate(&address, bytes, 0, 1);
    EXPECT_EQ(answer.code, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(answer.rule, Rule::create_capacity);
  }
  EXPECT_TRUE(heap.empty());
  EXPECT_TRUE(heap.heap.allocate(&address, memory_bytes, 0, 1).ok());
}

TEST(DeviceHeap, GivesMemoryBackWhenAddressesRunOut) {
  test::LedgerStore store(Ledger(1, memory_bytes, 0));
  AddressSpace addresses(granule, 2 * granule);
  DeviceHeap heap(granule, store, addresses);
  CUdeviceptr address = 0;
  EXPECT_EQ(heap.allocate(&address, 3 * granule, 0, 1).rule, Rule::reserve_space);
  EXPECT_EQ(store.live_allocations(), 0U);
  EXPECT_TRUE(heap.allocate(&address, 2 * granule, 0, 1).ok());
}

TEST(DeviceHeap, ResolvesWhatLiesInOneAllocation) {
  Heap heap;
  const CUdeviceptr address = heap.allocate(1000);
  std::vector<Segment> segments;
  EXPECT_FALSE(heap.heap.resolve(address + 1, 1000, segments).ok());
  EXPECT_FALSE(heap.heap.resolve(address + 1, ~std::uint64_t{0}, segments).ok());
  EXPECT_FALSE(heap.heap.resolve(address + 1000, 1, segments).ok());
  EXPECT_TRUE(segments.empty());
  EXPECT_TRUE(heap.heap.resolve(address + 1, 999, segments).ok());
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_EQ(segments[0].offset, 1U);
  EXPECT_EQ(segments[0].bytes, 999U);
}

TEST(DeviceHeap, FreesAllOfAContextAndNothingElse) {
  Heap heap;
  (void)heap.allocate(5, 0, 1);
  (void)heap.allocate(3 * granule, 0, 1);
  const CUdeviceptr kept = heap.allocate(5, 0, 2);
  heap.heap.free_all_of(1);
  EXPECT_EQ(heap.heap.live_allocations(), 1U);
  EXPECT_NE(heap.heap.find(kept), nullptr);
  heap.heap.free_all_of(2);
  EXPECT_TRUE(heap.empty());
}

RC_GTEST_PROP(DeviceHeapProperty, NeverOverlapsAndGivesAllBack, ()) {
  Heap heap;
  struct Live {
    CUdeviceptr address;
    std::uint64_t bytes;
    ContextId owner;
  };
  std::vector<Live> live;
  const int steps = *rc::gen::inRange(0, 100);
  for (int step = 0; step < steps; ++step) {
    const int what = *rc::gen::inRange(0, 12);
    if (what == 0) {
      const auto owner = *rc::gen::inRange<ContextId>(1, 4);
      heap.heap.free_all_of(owner);
      std::erase_if(live, [&](const Live& one) { return one.owner == owner; });
    } else if (what < 5 && !live.empty()) {
      const auto index = *rc::gen::inRange<std::size_t>(0, live.size());
      RC_ASSERT(heap.heap.free(live[index].address).ok());
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    } else {
      const std::uint64_t bytes = *rc::gen::inRange<std::uint64_t>(1, what < 9 ? 5000 : 3 * granule);
      const auto owner = *rc::gen::inRange<ContextId>(1, 4);
      CUdeviceptr address = 0;
      const Answer answer = heap.heap.allocate(&address, bytes, 0, owner);
      RC_ASSERT(answer.ok() || answer.code == CUDA_ERROR_OUT_OF_MEMORY);
      if (answer.ok()) live.push_back({address, bytes, owner});
    }
    RC_ASSERT(heap.heap.live_allocations() == live.size());
    std::sort(live.begin(), live.end(), [](const Live& a, const Live& b) { return a.address < b.address; });
    for (std::size_t index = 1; index < live.size(); ++index)
      RC_ASSERT(live[index - 1].address + live[index - 1].bytes <= live[index].address);
    for (const Live& one : live) {
      RC_ASSERT(heap.heap.find(one.address) != nullptr);
      RC_ASSERT(heap.heap.find(one.address + one.bytes - 1) == heap.heap.find(one.address));
    }
  }
  for (const Live& one : live) RC_ASSERT(heap.heap.free(one.address).ok());
  RC_ASSERT(heap.empty());
}

}  // namespace
}  // namespace cuvmm::emulator::model
