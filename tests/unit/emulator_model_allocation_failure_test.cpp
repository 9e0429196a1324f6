// What the model does when the process has no memory left: taking fails whole, giving back cannot fail. This program's
// operator new fails when it is told to.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "emulator/model/device_heap.hpp"
#include "emulator_model_machine.hpp"
#include "emulator_model_store.hpp"

namespace {

// How many allocations succeed before all further ones fail; negative: all succeed.
int allocations_left = -1;

void* allocate(std::size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: the compiler would see malloc on one side, operator delete on the other, and take them for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return allocate(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace cuvmm::emulator::model {
namespace {

using namespace test;

// Runs `work` with ever more allocations granted until it needs no more, and calls `check_unchanged` after each
// failure. Answers how often it failed.
template <class Work, class Check>
int fail_everywhere(Work&& work, Check&& check_unchanged) {
  for (int granted = 0;; ++granted) {
    allocations_left = granted;
    try {
      work();
      allocations_left = -1;
      return granted;
    } catch (const std::bad_alloc&) {
      allocations_left = -1;
      check_unchanged();
    }
  }
}

template <class Work>
void without_memory(Work&& work) {
  allocations_left = 0;
  work();
  allocations_left = -1;
}

TEST(AllocationFailure, LeavesNothingOfANewHandle) {
  ModelMachine machine;
  const CUmemAllocationProp properties = at(CU_MEM_LOCATION_TYPE_DEVICE);
  CUmemGenericAllocationHandle handle = 0;
  bool created = false;
  const int failures = fail_everywhere([&] { created = machine.memory.create(&handle, granule, &properties, 0).ok(); },
                                       [&] {
                                         EXPECT_EQ(machine.store.live_allocations(), 0U);
                                         EXPECT_EQ(machine.store.ledger().used(Place::on_device(0)), 0U);
                                       });
  EXPECT_GT(failures, 1);
  EXPECT_TRUE(created);
}

TEST(AllocationFailure, LeavesNothingOfAReservationOrMapping) {
  ModelMachine machine;
  const auto handle = machine.create(at(CU_MEM_LOCATION_TYPE_DEVICE));
  CUdeviceptr address = machine.reserve();
  expect_ok(machine.memory.free(address, granule));  // so that no failure makes room that the next attempt finds
  EXPECT_GT(fail_everywhere([&] { (void)machine.memory.reserve(&address, 2 * granule, 0, 10 * granule, 0); },
                            [&] {
                              EXPECT_EQ(machine.memory.live_reservations(), 0U);
                              EXPECT_EQ(machine.addresses.largest_free_piece(), machine.addresses.total_bytes());
                            }),
            1);
  EXPECT_EQ(fail_everywhere([&] { (void)machine.memory.map(address, granule, 0, handle, 0); },
                            [&] { EXPECT_EQ(machine.memory.live_mappings(), 0U); }),
            1);
  EXPECT_EQ(machine.memory.live_mappings(), 1U);
}

TEST(AllocationFailure, LeavesNothingOfAMappingPastItsReservation) {
  ModelMachine machine(model_configuration(Mode::faithful));
  machine.warnings.reserve(100);
  const auto handle = machine.create(at(CU_MEM_LOCATION_TYPE_DEVICE), 4 * granule);
  const CUdeviceptr address = machine.reserve();
  const std::uint64_t free_before = machine.addresses.largest_free_piece();
  CUdeviceptr between = 0;
  expect_ok(machine.memory.reserve(&between, granule, 0, address + 2 * granule, 0));
  const std::uint64_t free_between = machine.addresses.largest_free_piece();
  EXPECT_GT(fail_everywhere([&] { (void)machine.memory.map(address, 4 * granule, 0, handle, 0); },
                            [&] {
                              EXPECT_EQ(machine.memory.live_mappings(), 0U);
                              EXPECT_EQ(machine.addresses.largest_free_piece(), free_between);
                            }),
            2);
  EXPECT_EQ(machine.memory.live_mappings(), 1U);
  int refused = 0;
  without_memory([&] {
    refused += machine.memory.unmap(address, 4 * granule).ok() ? 0 : 1;
    refused += machine.memory.free(between, granule).ok() ? 0 : 1;
  });
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(machine.addresses.largest_free_piece(), free_before);
}

TEST(AllocationFailure, DoesNotHinderGivingBack) {
  ModelMachine machine;
  CUdeviceptr ranges[5] = {};
  CUmemGenericAllocationHandle handles[5] = {};
  for (int index = 0; index < 5; ++index) {
    handles[index] = machine.create(at(CU_MEM_LOCATION_TYPE_DEVICE));
    ranges[index] = machine.reserve();
    expect_ok(machine.memory.map(ranges[index], granule, 0, handles[index], 0));
  }
  int refused = 0;
  without_memory([&] {
    for (const int index : {1, 3, 0, 4, 2}) {  // pieces that join none, one, or two others
      refused += machine.memory.release(handles[index]).ok() ? 0 : 1;
      refused += machine.memory.unmap(ranges[index], granule).ok() ? 0 : 1;
      refused += machine.memory.free(ranges[index], granule).ok() ? 0 : 1;
    }
  });
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(machine.store.live_allocations(), 0U);
  EXPECT_EQ(machine.addresses.largest_free_piece(), machine.addresses.total_bytes());
}

TEST(AllocationFailure, LeavesNothingInTheHeapAndDoesNotHinderFreeing) {
  for (const std::uint64_t bytes : {std::uint64_t{700}, 3 * granule}) {
    test::LedgerStore store(Ledger(1, 16 * granule, 0));
    AddressSpace addresses(granule, 64 * granule);
    DeviceHeap heap(granule, store, addresses);
    CUdeviceptr pieces[3] = {};
    EXPECT_GT(fail_everywhere([&] { (void)heap.allocate(&pieces[0], bytes, 0, 1); },
                              [&] {
                                EXPECT_EQ(heap.live_allocations(), 0U);
                                EXPECT_EQ(store.live_allocations(), 0U);
                                EXPECT_EQ(addresses.largest_free_piece(), addresses.total_bytes());
                              }),
              1);
    (void)heap.allocate(&pieces[1], bytes, 0, 1);
    (void)heap.allocate(&pieces[2], bytes, 0, 2);
    bool freed = false;
    without_memory([&] {
      freed = heap.free(pieces[0]).ok() && heap.free(pieces[1]).ok();
      heap.free_all_of(2);
    });
    EXPECT_TRUE(freed);
    EXPECT_EQ(heap.live_allocations(), 0U);
    EXPECT_EQ(addresses.largest_free_piece(), addresses.total_bytes());
  }
}

}  // namespace
}  // namespace cuvmm::emulator::model
