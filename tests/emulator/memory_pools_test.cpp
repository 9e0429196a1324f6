// Memory pools, and allocations and frees in the order of a stream.
#include <atomic>
#include <chrono>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

CUmemPoolProps pool_on(int device, std::uint64_t most = 0) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.maxSize = most;
  return properties;
}

// A stepped machine, on which nothing runs before it is waited for.
class MemoryPools : public ::testing::Test {
 protected:
  static Configuration configuration() {
    Configuration stepped = strict(2);
    stepped.scheduler = Scheduler::stepped;
    return stepped;
  }
  CUmemoryPool make(const CUmemPoolProps& properties = pool_on(0)) {
    CUmemoryPool made = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolCreate(&made, &properties));
    return made;
  }
  CUstream make_stream() {
    CUstream made = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
  }
  CUdeviceptr allocate(std::uint64_t bytes, CUmemoryPool from, CUstream in) {
    CUdeviceptr made = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocFromPoolAsync(&made, bytes, from, in));
    return made;
  }
  std::uint64_t number(CUmemoryPool of, CUmemPool_attribute attribute) {
    std::uint64_t value = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolGetAttribute(of, attribute, &value));
    return value;
  }
  std::uint64_t used(CUmemoryPool of) { return number(of, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }
  std::uint64_t reserved(CUmemoryPool of) { return number(of, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
  template <class Value>
  CUresult set(CUmemoryPool of, CUmemPool_attribute attribute, Value value) {
    return driver->cuMemPoolSetAttribute(of, attribute, &value);
  }
  void finish(CUstream in) { EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(in)); }

  Emulated driver{configuration()};
  CUmemoryPool pool = make();
  CUstream stream = make_stream();
  CUstream other = make_stream();
};

TEST_F(MemoryPools, CountAsUsedWhatWasAskedForUntilItsFreeIs) {
  const CUdeviceptr memory = allocate(1000, pool, stream);
  EXPECT_EQ(used(pool), 1000U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 3, 1000, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_EQ(used(pool), 0U) << "though nothing has run";
  EXPECT_EQ(reserved(pool), 32 * mebibyte);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFree(memory));
  finish(stream);
  EXPECT_EQ(reserved(pool), 0U);
  EXPECT_EQ(used(pool), 0U);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1000U);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8Async(memory, 3, 1000, stream));
  EXPECT_EQ(driver.live().pool_allocations, 0U);
}

TEST_F(MemoryPools, ReserveWholeChunksAndGiveThemBackInTheEnd) {
  struct Size {
    std::uint64_t bytes, reserved;
  };
  CUdeviceptr first = 0;
  for (const Size& size : {Size{1, 32}, Size{513, 32}, Size{2 * mebibyte + 1, 32}, Size{32 * mebibyte, 32},
                           Size{33 * mebibyte, 64}, Size{64 * mebibyte + 1, 96}}) {
    const CUdeviceptr memory = allocate(size.bytes, pool, stream);
    EXPECT_EQ(used(pool), size.bytes);
    EXPECT_EQ(reserved(pool), size.reserved * mebibyte) << size.bytes;
    if (first == 0) first = memory;
    EXPECT_EQ(memory, first) << "where the one before was";
    EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
    EXPECT_EQ(reserved(pool), size.reserved * mebibyte);
    finish(stream);
    EXPECT_EQ(reserved(pool), 0U);
  }
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 96 * mebibyte);
}

TEST_F(MemoryPools, GiveTheSameStreamItsAddressBackAtOnce) {
  const CUdeviceptr first = allocate(1000, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(first, 1, 1000, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  EXPECT_NE(allocate(1000, pool, other), first) << "another stream would have to wait";
  const CUdeviceptr second = allocate(600, pool, stream);
  EXPECT_EQ(second, first);
  EXPECT_EQ(used(pool), 1600U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(second, 2, 600, stream));
  finish(stream);  // the first memset is of more than there is now
  EXPECT_EQ(driver.read(second, 600), std::vector<unsigned char>(600, 2));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuMemsetD8Async(second, 2, 601, stream));  // the free of the first one has run
  EXPECT_EQ(driver.live().pool_allocations, 2U);
}

TEST_F(MemoryPools, FaultWorkThatComesAfterTheFree) {
  const CUdeviceptr memory = allocate(1000, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 3, 1000, stream));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuStreamSynchronize(stream));
}

TEST_F(MemoryPools, PassFreedMemoryOnInTheOrderOfTheStream) {
  const std::uint64_t most = driver.free_memory() * 3 / 5;
  const CUdeviceptr first = allocate(most, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(first, 1, 64, stream));
  const CUdeviceptr output = driver.mapped();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoDAsync(output, first, 64, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  const CUdeviceptr second = allocate(most, pool, stream);
  EXPECT_EQ(first, second);
  EXPECT_EQ(used(pool), most);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(second, 2, 64, stream));
  CUdeviceptr third = 0;
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemAllocFromPoolAsync(&third, most, pool, stream));
  finish(stream);
  EXPECT_EQ(driver.read(output, 64), std::vector<unsigned char>(64, 1));
  EXPECT_EQ(driver.read(second, 64), std::vector<unsigned char>(64, 2));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(second, stream));
  finish(stream);
  EXPECT_EQ(used(pool), 0U);
}

TEST_F(MemoryPools, MakeAnotherStreamWaitForTheFreeWhereTheyMay) {
  const std::uint64_t most = driver.free_memory() * 3 / 5;
  const CUdeviceptr first = allocate(most, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0), CUDA_SUCCESS);
  CUdeviceptr second = 0;
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemAllocFromPoolAsync(&second, most, pool, other));
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1), CUDA_SUCCESS);
  second = allocate(most, pool, other);
  EXPECT_EQ(second, first);
  EXPECT_EQ(driver.live().pool_allocations, 2U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(second, 2, 64, other));
  finish(other);
  EXPECT_EQ(driver.live().pool_allocations, 1U) << "the free of the other stream has run";
  EXPECT_EQ(driver.read(second, 64), std::vector<unsigned char>(64, 2));
}

TEST_F(MemoryPools, FollowEventsWhereTheyMay) {
  CUstream third = make_stream();
  CUevent freed = nullptr, passed = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuEventCreate(&freed, CU_EVENT_DISABLE_TIMING));
  EXPECT_ANSWER(SUCCESS, *driver, cuEventCreate(&passed, CU_EVENT_DISABLE_TIMING));
  const CUdeviceptr first = allocate(1000, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuEventRecord(freed, stream));
  EXPECT_NE(allocate(1000, pool, third), first) << "which has waited for nothing";
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWaitEvent(other, freed, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuEventRecord(passed, other));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWaitEvent(third, passed, 0));
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0), CUDA_SUCCESS);
  EXPECT_NE(allocate(1000, pool, third), first);
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1), CUDA_SUCCESS);
  EXPECT_EQ(allocate(1000, pool, third), first);
  finish(third);
}

TEST_F(MemoryPools, DoNotFollowEventsThatCameBeforeTheFree) {
  CUevent before = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
  const CUdeviceptr held = allocate(1000, pool, stream);
  const CUdeviceptr first = allocate(1000, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(held, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuEventRecord(before, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamWaitEvent(other, before, 0));
  EXPECT_EQ(allocate(1000, pool, other), held);
  EXPECT_NE(allocate(1000, pool, other), first);
  finish(stream);
}

TEST_F(MemoryPools, MakeRoomForOthersWhereMemoryIsShort) {
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::numeric_limits<std::uint64_t>::max()), CUDA_SUCCESS);
  const std::uint64_t most = driver.free_memory() / 5 * 3 / chunk * chunk;
  const auto hold = [&] {
    EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(allocate(most, pool, stream), stream));
    finish(stream);
    EXPECT_GE(reserved(pool), most);
  };
  hold();
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, most));
  EXPECT_EQ(reserved(pool), 0U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(memory));
  hold();
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = on_device(0);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemCreate(&handle, most, &properties, 0));
  EXPECT_EQ(reserved(pool), 0U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
  hold();
  memory = allocate(most, make(), stream);
  EXPECT_EQ(reserved(pool), 0U);
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemAlloc(&memory, most));
}

TEST_F(MemoryPools, AreTrimmedOfWhatTheHostKnowsToBeUnused) {
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::numeric_limits<std::uint64_t>::max()), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(allocate(100 * mebibyte, pool, stream), stream));
  while (driver->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) continue;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(reserved(pool), 128 * mebibyte) << "nobody has synchronized";
  finish(stream);
  EXPECT_EQ(reserved(pool), 128 * mebibyte);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(reserved(pool), 0U);
}

TEST_F(MemoryPools, GiveChunksBackUntilTheThreshold) {
  for (const std::uint64_t threshold : {std::uint64_t{16}, std::uint64_t{40}}) {
    EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold * mebibyte), CUDA_SUCCESS);
    const CUdeviceptr first = allocate(30 * mebibyte, pool, stream), second = allocate(30 * mebibyte, pool, stream);
    EXPECT_EQ(reserved(pool), 64 * mebibyte);
    EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
    EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(second, stream));
    finish(stream);
    EXPECT_EQ(reserved(pool), threshold == 16 ? 0U : 32 * mebibyte);
  }
  for (const std::uint64_t kept : {40, 33, 32}) {
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolTrimTo(pool, kept * mebibyte));
    EXPECT_EQ(reserved(pool), 32 * mebibyte);
  }
}

TEST_F(MemoryPools, TellOfAnAttemptByTheirHighMark) {
  const std::uint64_t all = driver.free_memory();
  const std::uint64_t most = all / 5 * 3;
  (void)allocate(most, pool, stream);
  EXPECT_LT(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), all / 5 * 4);
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemAllocFromPoolAsync(&memory, most, pool, stream));
  EXPECT_GT(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), all - 64 * mebibyte);
  EXPECT_LT(reserved(pool), all / 5 * 4);
}

TEST_F(MemoryPools, KeepCompletedFreesToTheirStreamWhereOpportunismIsOff) {
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0), CUDA_SUCCESS);
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::numeric_limits<std::uint64_t>::max()), CUDA_SUCCESS);
  const std::uint64_t whole = 32 * mebibyte;
  const CUdeviceptr first = allocate(whole, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  EXPECT_ANSWER(ERROR_NOT_READY, *driver, cuStreamQuery(stream));
  while (driver->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) continue;
  (void)allocate(whole, pool, other);
  EXPECT_EQ(reserved(pool), 2 * whole);
  (void)allocate(whole, pool, stream);
  EXPECT_EQ(reserved(pool), 2 * whole) << "the stream has its own again";
}

TEST_F(MemoryPools, GiveUnusedMemoryBackAboveTheThreshold) {
  const std::size_t before = driver.free_memory();
  CUdeviceptr memory = allocate(1000, pool, stream);
  EXPECT_EQ(reserved(pool), 32 * mebibyte);
  EXPECT_EQ(driver.free_memory(), before - 32 * mebibyte);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  finish(stream);
  EXPECT_EQ(driver.free_memory(), before);
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 32 * mebibyte);
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::uint64_t{32 * mebibyte}), CUDA_SUCCESS);
  memory = allocate(1000, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  finish(stream);
  EXPECT_EQ(reserved(pool), 32 * mebibyte);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolTrimTo(pool, 1));
  EXPECT_EQ(reserved(pool), 32 * mebibyte) << "less would be left";
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(driver.free_memory(), before);
}

TEST_F(MemoryPools, HaveALimit) {
  const CUmemoryPool small = make(pool_on(0, 33 * mebibyte));
  const CUdeviceptr memory = allocate(33 * mebibyte, small, stream);
  CUdeviceptr more = 0;
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemAllocFromPoolAsync(&more, 33 * mebibyte, small, other));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  finish(stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocFromPoolAsync(&more, 33 * mebibyte, small, other));
}

TEST_F(MemoryPools, HaveLimitsOfWholeChunks) {
  const CUmemoryPool smallest = make(pool_on(0, 1));
  (void)allocate(16 * mebibyte, smallest, stream);
  (void)allocate(16 * mebibyte, smallest, stream);
  CUdeviceptr more = 0;
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemAllocFromPoolAsync(&more, 1, smallest, stream));
}

TEST_F(MemoryPools, LiveOnUntilTheirLastAllocationIsFreed) {
  const std::size_t before = driver.free_memory();
  const CUdeviceptr memory = allocate(1000, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(pool));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolDestroy(pool));
  CUdeviceptr more = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAllocFromPoolAsync(&more, 1000, pool, stream));
  driver.write(memory, {1, 2, 3});
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  finish(stream);
  EXPECT_EQ(driver.free_memory(), before);
}

TEST_F(MemoryPools, KeepWhatTheyAreTold) {
  for (const auto flag : {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
    EXPECT_EQ(number(pool, flag), 1U);
    EXPECT_EQ(set(pool, flag, 0), CUDA_SUCCESS);
    EXPECT_EQ(number(pool, flag), 0U);
    EXPECT_EQ(set(pool, flag, 2), CUDA_SUCCESS);
    EXPECT_EQ(number(pool, flag), 1U);
  }
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0U);
  const std::uint64_t one = 1, zero = 0;
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, zero), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, zero), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr memory = allocate(1000, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  finish(stream);
  for (const auto high : {CU_MEMPOOL_ATTR_USED_MEM_HIGH, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH}) {
    EXPECT_EQ(set(pool, high, one), CUDA_ERROR_INVALID_VALUE);
    EXPECT_NE(number(pool, high), 0U);
    EXPECT_EQ(set(pool, high, zero), CUDA_SUCCESS);
    EXPECT_EQ(number(pool, high), 0U) << "nothing is there now";
  }
  const auto no_attribute = static_cast<CUmemPool_attribute>(99);
  std::uint64_t value = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolGetAttribute(pool, no_attribute, &value));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolSetAttribute(pool, no_attribute, &value));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, nullptr));
}

TEST_F(MemoryPools, WantWellFormedProperties) {
  CUmemoryPool made = nullptr;
  const auto refused = [&](auto spoil) {
    CUmemPoolProps properties = pool_on(0);
    spoil(properties);
    return driver->cuMemPoolCreate(&made, &properties);
  };
  EXPECT_EQ(refused([](auto&) {}), CUDA_SUCCESS);
  EXPECT_EQ(refused([](auto& it) { it.allocType = CU_MEM_ALLOCATION_TYPE_INVALID; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& it) { it.location.id = 2; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& it) { it.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT; }),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& it) { it.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 9}; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& it) { it.reserved[53] = 1; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& it) { it.usage = 1; }), CUDA_SUCCESS) << "nobody looks at it";
  EXPECT_EQ(refused([](auto& it) { it.win32SecurityAttributes = &it; }), CUDA_SUCCESS);
  EXPECT_EQ(refused([](auto& it) { it.handleTypes = CU_MEM_HANDLE_TYPE_WIN32; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& it) { it.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC; }), CUDA_SUCCESS);
  EXPECT_EQ(refused([](auto& it) { it.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; }), CUDA_SUCCESS);
  EXPECT_EQ(refused([](auto& it) {
              it.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
              it.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            }),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused([](auto& it) { it.maxSize = std::uint64_t{1} << 50; }), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(refused([](auto& it) { it.maxSize = std::uint64_t{1} << 30; }), CUDA_SUCCESS);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolCreate(&made, nullptr));
}

TEST_F(MemoryPools, OfEachLocationHaveADefault) {
  std::set<CUmemoryPool> all;
  CUmemoryPool standard = nullptr;
  const auto default_of = [&](CUmemLocation location, CUmemAllocationType type) {
    const CUresult answer = driver->cuMemGetDefaultMemPool(&standard, &location, type);
    if (answer == CUDA_SUCCESS) all.insert(standard);
    return answer;
  };
  EXPECT_EQ(default_of({CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
  EXPECT_EQ(default_of({CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
  EXPECT_EQ(default_of({CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
  EXPECT_EQ(default_of({CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ALLOCATION_TYPE_MANAGED), CUDA_SUCCESS);
  EXPECT_EQ(default_of({CU_MEM_LOCATION_TYPE_INVALID, 0}, CU_MEM_ALLOCATION_TYPE_MANAGED), CUDA_SUCCESS);
  EXPECT_EQ(all.size(), 5U);
  EXPECT_EQ(default_of({CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0}, CU_MEM_ALLOCATION_TYPE_PINNED),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(default_of({CU_MEM_LOCATION_TYPE_INVALID, 0}, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_INVALID_VALUE);
  CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemPoolProps properties = pool_on(0);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  const CUmemoryPool managed = make(properties);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, managed));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_MANAGED, managed));
}

TEST_F(MemoryPools, OfADeviceAreItsDefaultUntilAnotherIsSet) {
  CUmemoryPool standard = nullptr, current = nullptr, of_other = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetDefaultMemPool(&standard, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetDefaultMemPool(&of_other, 1));
  EXPECT_NE(standard, of_other);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolDestroy(standard));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceSetMemPool(1, pool));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceSetMemPool(1, standard));
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceSetMemPool(0, pool));
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, pool);
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocAsync(&memory, 64, stream));
  EXPECT_EQ(used(pool), 64U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(pool));
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_ANSWER(SUCCESS, *driver, cuMemGetMemPool(&current, &location, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(current, standard);
}

TEST_F(MemoryPools, AreOpenToTheDevicesThatAreNamed) {
  const CUdeviceptr memory = allocate(64, pool, stream);
  finish(stream);
  CUmemLocation peer{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemAccess_flags flags{};
  const auto peer_may_write = [&] {
    const CUcontext own = driver.use(0);
    driver.use(1);
    const CUresult answer = driver->cuMemsetD8(memory, 1, 64);
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(own));
    return answer;
  };
  EXPECT_EQ(peer_may_write(), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc access = grant_device(1);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolSetAccess(pool, &access, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolGetAccess(&flags, pool, &peer));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(peer_may_write(), CUDA_SUCCESS);
  access = grant_device(1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolSetAccess(pool, &access, 1));
  EXPECT_EQ(peer_may_write(), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryPools, AreOpenedWholly) {
  const auto granted = [&](CUmemAccessDesc access) { return driver->cuMemPoolSetAccess(pool, &access, 1); };
  const auto rights = [&](CUmemLocation location) {
    CUmemAccess_flags flags{};
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolGetAccess(&flags, pool, &location));
    return flags;
  };
  EXPECT_EQ(granted(grant_device(0, CU_MEM_ACCESS_FLAGS_PROT_NONE)), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(granted(grant_device(0, CU_MEM_ACCESS_FLAGS_PROT_READ)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(granted(grant_device(0)), CUDA_SUCCESS);
  EXPECT_EQ(rights({CU_MEM_LOCATION_TYPE_DEVICE, 0}), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(granted(grant_device(1, CU_MEM_ACCESS_FLAGS_PROT_READ)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(rights({CU_MEM_LOCATION_TYPE_DEVICE, 1}), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(granted(grant_device(1)), CUDA_SUCCESS);
  EXPECT_EQ(granted(grant_device(1, CU_MEM_ACCESS_FLAGS_PROT_NONE)), CUDA_SUCCESS);
  EXPECT_EQ(granted(grant_device(9)), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(granted(grant_host()), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(granted({{CU_MEM_LOCATION_TYPE_INVALID, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}), CUDA_ERROR_NOT_SUPPORTED);
  const CUmemAccessDesc none = grant_device(9);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolSetAccess(pool, &none, 0));  // which grants nothing
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolSetAccess(pool, nullptr, 1));
  EXPECT_EQ(rights({CU_MEM_LOCATION_TYPE_HOST, 0}), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CUmemLocation nowhere{CU_MEM_LOCATION_TYPE_DEVICE, 9};
  CUmemAccess_flags flags{};
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolGetAccess(&flags, pool, &nowhere));
}

TEST_F(MemoryPools, TellOfTheirPointers) {
  const CUdeviceptr memory = allocate(1000, pool, stream);
  CUmemoryPool told = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory + 10));
  EXPECT_EQ(told, pool);
  CUcontext context = reinterpret_cast<CUcontext>(this);
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  EXPECT_EQ(context, nullptr) << "it belongs to none";
  CUdeviceptr base = 0;
  std::size_t size = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemGetAddressRange(&base, &size, memory + 10));
  EXPECT_EQ(base, memory);
  EXPECT_EQ(size, 1000U);
  const auto word = [&](CUpointer_attribute attribute) {
    unsigned long long value = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&value, attribute, memory));
    return value;
  };
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), std::uint64_t{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_DEVICE_POINTER), memory);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 0U);
  EXPECT_NE(word(CU_POINTER_ATTRIBUTE_BUFFER_ID), 0U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_IS_MANAGED), 0U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE), 0U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), memory);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_RANGE_SIZE), 1000U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR), memory) << "the chunk's";
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_MAPPING_SIZE), 32 * mebibyte);
  unsigned long long tokens[2] = {9, 9};
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, memory));
  EXPECT_EQ(tokens[0], 0U);
  unsigned long long rights = 9;
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_ANSWER(SUCCESS, *driver, cuMemGetAccess(&rights, &here, memory));
  EXPECT_EQ(rights, 0U) << "they are the pool's";
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_MAPPED), 1U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES), 0U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE), 0U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS), 3U);
  void* host = nullptr;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory));
}

TEST_F(MemoryPools, OfManagedMemoryServeProcessAndDevices) {
  CUmemPoolProps properties = pool_on(1);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  const CUdeviceptr memory = allocate(5000, make(properties), stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 7, 5000, stream));
  finish(stream);
  auto* const bytes = reinterpret_cast<unsigned char*>(memory);
  EXPECT_EQ(bytes[4999], 7);
  bytes[0] = 9;
  EXPECT_EQ(driver.read(memory, 2), (std::vector<unsigned char>{9, 7}));
  unsigned managed = 0, type = 0;
  int device = -1;
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
  EXPECT_EQ(managed, 1U);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(device, 1);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  finish(stream);
  EXPECT_EQ(driver.live().pool_allocations, 0U);
}

TEST_F(MemoryPools, OfTheHostAreSeenByTheProcess) {
  CUmemPoolProps properties = pool_on(0);
  properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  const CUmemoryPool host = make(properties);
  const CUdeviceptr memory = allocate(5000, host, stream);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8Async(memory, 7, 5000, stream));  // nobody was let in
  CUmemAccessDesc access = grant_device(0);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolSetAccess(host, &access, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 7, 5000, stream));
  finish(stream);
  access = grant_device(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolSetAccess(host, &access, 1));
  access = grant_host(CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_ANSWER(ERROR_NOT_SUPPORTED, *driver, cuMemPoolSetAccess(host, &access, 1));
  const auto* bytes = reinterpret_cast<const unsigned char*>(memory);
  EXPECT_EQ(bytes[0], 7);
  EXPECT_EQ(bytes[4999], 7);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  finish(stream);
  EXPECT_EQ(driver.live().pool_allocations, 0U);
}

TEST_F(MemoryPools, OfTheHostThatThereAlwaysAreLetDevicesInLikeOthers) {
  CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, 0};
  CUmemoryPool standard = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemGetDefaultMemPool(&standard, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
  const CUdeviceptr memory = allocate(64, standard, stream);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8Async(memory, 7, 64, stream));
  const CUmemAccessDesc access = grant_device(0);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolSetAccess(standard, &access, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 7, 64, stream));
  finish(stream);
  EXPECT_EQ(*reinterpret_cast<const unsigned char*>(memory), 7);
}

TEST_F(MemoryPools, OfTheHostThatLetNobodyInAreCopiedAsTheHostsMemory) {
  CUmemPoolProps properties = pool_on(0);
  properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  const CUdeviceptr memory = allocate(64, make(properties), stream);
  auto* const bytes = reinterpret_cast<unsigned char*>(memory);
  CUdeviceptr there = 0;
  unsigned char byte = 5;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&there, 64));
  finish(stream);
  // Named as a device's.
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyHtoD(memory, &byte, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoH(&byte, memory, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoD(there, memory, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyHtoDAsync(memory, &byte, 1, stream));
  // Named as the host's, or as either's.
  bytes[0] = 7;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpy(there, memory, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyAsync(memory + 1, there, 1, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyHtoDAsync(there + 1, bytes + 1, 1, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoHAsync(bytes + 2, there + 1, 1, stream));
  finish(stream);
  EXPECT_EQ(bytes[2], 7);
}

TEST_F(MemoryPools, TakeAndGiveBackPiecesOf32MiB) {
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::numeric_limits<std::uint64_t>::max()), CUDA_SUCCESS);
  const CUdeviceptr first = allocate(40 * mebibyte, pool, stream);
  const CUdeviceptr second = allocate(40 * mebibyte, pool, stream);
  EXPECT_EQ(second, first + 40 * mebibyte) << "one follows the other";
  EXPECT_EQ(reserved(pool), 96 * mebibyte);
  std::uint64_t size = 0, base = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, second));
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, second));
  EXPECT_EQ(size, 32 * mebibyte);
  EXPECT_EQ(base, first + 32 * mebibyte);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  finish(stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(reserved(pool), 64 * mebibyte) << "in the second piece both have lain";
}

TEST_F(MemoryPools, FreeAtOnceByCuMemFree) {
  const CUdeviceptr memory = allocate(64, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(memory));
  EXPECT_EQ(reserved(pool), 0U);
  EXPECT_EQ(used(pool), 64U) << "which it counts for ever";
  EXPECT_EQ(number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 64U);
  EXPECT_EQ(driver.live().pool_allocations, 0U);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFree(memory));
}

TEST_F(MemoryPools, GetBackWhatADroppedFreeWasToFree) {
  CUcontext context = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&context, 0, 0));
  const CUstream doomed = make_stream();
  const CUdeviceptr memory = allocate(64, pool, doomed);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, doomed));
  EXPECT_EQ(driver.live().pool_allocations, 1U);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(context));
  EXPECT_EQ(driver.live().pool_allocations, 0U);
}

TEST_F(MemoryPools, HaveNothingAtAddressZero) {
  CUdeviceptr memory = 1;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocAsync(&memory, 0, stream));
  EXPECT_EQ(memory, 0U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_EQ(driver.live().pool_allocations, 0U);
}

TEST_F(MemoryPools, LetMemoryOfCuMemAllocBeFreedInAStream) {
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 64));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 1, 64, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(memory + 1, stream));
  EXPECT_EQ(driver.live().heap_allocations, 1U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_EQ(driver.live().heap_allocations, 0U) << "it has waited for the stream, as cuMemFree does";
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamQuery(stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFree(memory));
}

TEST_F(MemoryPools, TakeAllocationsThatLieAcrossChunks) {
  std::vector<std::uint64_t> held;
  CUdeviceptr last = 0, before = 0;
  for (const std::uint64_t bytes :
       {std::uint64_t{1000}, std::uint64_t{1000}, 3 * mebibyte, 30 * mebibyte, 40 * mebibyte}) {
    before = last;
    last = allocate(bytes, pool, stream);
    held.push_back(reserved(pool) / mebibyte);
  }
  EXPECT_EQ(held, (std::vector<std::uint64_t>{32, 32, 32, 64, 96}));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(before, 3, 30 * mebibyte, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(last, 4, 40 * mebibyte, stream));
  finish(stream);
  EXPECT_EQ(driver.read(before, 30 * mebibyte), std::vector<unsigned char>(30 * mebibyte, 3));
  EXPECT_EQ(driver.read(last, 40 * mebibyte), std::vector<unsigned char>(40 * mebibyte, 4));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8Async(last, 4, 40 * mebibyte + 1, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(before, stream));
  finish(stream);
  EXPECT_EQ(reserved(pool), 96 * mebibyte) << "each chunk has something";
  EXPECT_EQ(allocate(30 * mebibyte, pool, stream), before) << "in what two chunks have free";
  EXPECT_EQ(reserved(pool), 96 * mebibyte);
}

TEST_F(MemoryPools, OfTheHostTakeAllocationsThatLieAcrossChunks) {
  CUmemPoolProps properties = pool_on(0);
  properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  const CUmemoryPool host = make(properties);
  (void)allocate(20 * mebibyte, host, stream);
  auto* const bytes = reinterpret_cast<unsigned char*>(allocate(20 * mebibyte, host, stream));
  EXPECT_EQ(reserved(host), 64 * mebibyte);
  bytes[0] = 1;
  bytes[20 * mebibyte - 1] = 2;
  const CUmemAccessDesc access = grant_device(0);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolSetAccess(host, &access, 1));
  const auto content = driver.read(reinterpret_cast<CUdeviceptr>(bytes), 20 * mebibyte);
  EXPECT_EQ(content.front(), 1);
  EXPECT_EQ(content.back(), 2);
}

TEST_F(MemoryPools, CutWhatIsPassedOn) {
  const CUdeviceptr first = allocate(4096, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(first, 1, 4096, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  EXPECT_EQ(allocate(100, pool, stream), first);
  EXPECT_EQ(allocate(1024, pool, stream), first + 512) << "behind the other";
  EXPECT_NE(allocate(4096, pool, stream), first + 1536) << "there is less left";
  EXPECT_EQ(allocate(2560, pool, stream), first + 1536) << "all that is left";
  EXPECT_NE(allocate(1, pool, stream), first + 4096 - 512);
  finish(stream);
  EXPECT_EQ(driver.live().pool_allocations, 5U);
  for (const CUdeviceptr memory : {first, first + 512, first + 1536})
    EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  finish(stream);
  EXPECT_EQ(allocate(4096, pool, other), first) << "it is one again";
}

TEST_F(MemoryPools, GetBackWhatWasNotPassedOn) {
  const CUdeviceptr first = allocate(4096, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  EXPECT_EQ(allocate(100, pool, stream), first);
  EXPECT_NE(allocate(1024, pool, other), first + 512) << "the free has not run";
  finish(stream);
  EXPECT_EQ(allocate(1024, pool, other), first + 512);
}

TEST_F(MemoryPools, CutWhatRestsForTheirStream) {
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0), CUDA_SUCCESS);
  (void)allocate(64, pool, other);
  const CUdeviceptr first = allocate(4096, pool, stream);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(first, stream));
  while (driver->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) continue;
  EXPECT_EQ(allocate(100, pool, stream), first);
  EXPECT_EQ(allocate(100, pool, stream), first + 512);
  EXPECT_EQ(allocate(3072, pool, stream), first + 1024);
  EXPECT_EQ(allocate(512, pool, stream), first + 4096) << "nothing rests any more";
}

TEST_F(MemoryPools, WithALimitTellOfAnAttemptByTheirHighMark) {
  const CUmemoryPool small = make(pool_on(0, 1));
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemAllocFromPoolAsync(&memory, 33 * mebibyte, small, stream));
  EXPECT_EQ(reserved(small), 0U);
  EXPECT_EQ(number(small, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 32 * mebibyte) << "and no more";
}

TEST(MemoryPoolsInThreads, AFreeOfCuMemAllocMemoryWaitsForTheStream) {
  Emulated driver(strict());
  struct Gate {
    std::atomic<bool> open{false}, passed{false};
  } gate;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 64));
  const auto wait = [](void* data) {
    auto& held = *static_cast<Gate*>(data);
    while (!held.open) std::this_thread::yield();
    held.passed = true;
  };
  EXPECT_ANSWER(SUCCESS, *driver, cuLaunchHostFunc(stream, wait, &gate));
  std::atomic<bool> returned{false}, passed_first{false};
  std::thread freeing([&] {
    EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
    passed_first = gate.passed.load();
    returned = true;
  });
  for (int round = 0; round < 50 && !returned; ++round) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(returned);
  gate.open = true;
  freeing.join();
  EXPECT_TRUE(passed_first);
  EXPECT_EQ(driver.live().heap_allocations, 0U);
}

TEST_F(MemoryPools, RefuseWrongArguments) {
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAllocAsync(nullptr, 64, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAllocFromPoolAsync(&memory, 64, nullptr, stream));
  EXPECT_ANSWER(ERROR_INVALID_HANDLE, *driver, cuMemAllocAsync(&memory, 64, reinterpret_cast<CUstream>(this)));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(driver.mapped(), stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocAsync(&memory, 64, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(memory + 1, stream));
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver,
                cuMemAllocAsync(&memory, std::numeric_limits<std::size_t>::max(), stream));
}

TEST(MemoryPoolsInThreads, KeepCountOfEveryAllocation) {
  Emulated driver(strict());
  CUmemoryPool pool = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetDefaultMemPool(&pool, 0));
  std::vector<CUstream> streams(4);
  for (CUstream& stream : streams) EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 200; ++round)
    for (const CUstream stream : streams) {
      CUdeviceptr memory = 0;
      ASSERT_ANSWER(SUCCESS, *driver,
                    cuMemAllocAsync(&memory, 1000 + 7000U * static_cast<unsigned>(round % 5), stream));
      ASSERT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(memory, 1, 1000, stream));
      ASSERT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
    }
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  std::uint64_t used = 1;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(used, 0U);
  EXPECT_EQ(driver.live().allocations, 0U) << "what is not in use went back";
}

}  // namespace
}  // namespace cuvmm::emulator::test
