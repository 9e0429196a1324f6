// Memory pools that are exported and imported, within one process of a machine of its own.
#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

constexpr auto descriptor_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

void* as_os_handle(int descriptor) {
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
}

class PoolSharing : public ::testing::Test {
 protected:
  CUmemoryPool make(int handle_types = descriptor_type, CUmemLocationType where = CU_MEM_LOCATION_TYPE_DEVICE) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
    properties.location = {where, 0};
    CUmemoryPool made = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolCreate(&made, &properties));
    return made;
  }
  CUstream make_stream() {
    CUstream made = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
  }
  int exported(CUmemoryPool of) {
    int made = -1;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolExportToShareableHandle(&made, of, descriptor_type, 0));
    return made;
  }
  CUmemoryPool imported(int from) {
    CUmemoryPool made = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolImportFromShareableHandle(&made, as_os_handle(from), descriptor_type, 0));
    return made;
  }
  CUdeviceptr allocate(CUmemoryPool from, std::uint64_t bytes = 4096) {
    CUdeviceptr made = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocFromPoolAsync(&made, bytes, from, stream));
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
    return made;
  }
  CUmemPoolPtrExportData told_of(CUdeviceptr address) {
    CUmemPoolPtrExportData data{};
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolExportPointer(&data, address));
    return data;
  }
  CUdeviceptr imported(CUmemoryPool into, CUmemPoolPtrExportData data) {
    CUdeviceptr made = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolImportPointer(&made, into, &data));
    return made;
  }
  void free(CUdeviceptr address) {
    EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(address, stream));
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
  }
  std::uint64_t number(CUmemoryPool of, CUmemPool_attribute attribute) {
    std::uint64_t value = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolGetAttribute(of, attribute, &value));
    return value;
  }
  std::uint64_t reserved(CUmemoryPool of) { return number(of, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
  std::uint64_t used(CUmemoryPool of) { return number(of, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }

  Emulated driver{strict(2)};
  CUstream stream = make_stream();
  CUmemoryPool pool = make();
  int descriptor = exported(pool);
};

TEST_F(PoolSharing, ShowsTheSameBytesAtAnotherAddress) {
  const CUdeviceptr here = allocate(pool);
  driver.write(here, {1, 2, 3});
  const CUmemoryPool there = imported(descriptor);
  EXPECT_NE(there, pool);
  const CUdeviceptr seen = imported(there, told_of(here));
  EXPECT_NE(seen, here);
  EXPECT_EQ(driver.read(seen, 3), (std::vector<unsigned char>{1, 2, 3}));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(seen + 4095, 9, 1));
  EXPECT_EQ(driver.read(here + 4095, 1), (std::vector<unsigned char>{9}));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8(seen + 4096, 9, 1));
  free(seen);
  EXPECT_EQ(driver.read(here, 3), (std::vector<unsigned char>{1, 2, 3}));
}

TEST_F(PoolSharing, ExportsAPoolAsWhatItWasMadeToBe) {
  int made = -1;
  const CUmemoryPool plain = make(0);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportToShareableHandle(&made, plain, descriptor_type, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuMemPoolExportToShareableHandle(&made, pool, CU_MEM_HANDLE_TYPE_NONE, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuMemPoolExportToShareableHandle(&made, pool, CU_MEM_HANDLE_TYPE_WIN32, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuMemPoolExportToShareableHandle(&made, pool, CU_MEM_HANDLE_TYPE_FABRIC, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportToShareableHandle(&made, pool, descriptor_type, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportToShareableHandle(nullptr, pool, descriptor_type, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportToShareableHandle(&made, nullptr, descriptor_type, 0));
  EXPECT_EQ(made, -1);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolExportToShareableHandle(&made, pool, descriptor_type, 0));
  EXPECT_NE(made, descriptor) << "each export has a descriptor of its own";
  EXPECT_EQ(::fcntl(made, F_GETFD) & FD_CLOEXEC, 0);
  const CUmemoryPool imports[] = {imported(descriptor), imported(made)};
  EXPECT_EQ(imports[0], imports[1]);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportToShareableHandle(&made, imports[0], descriptor_type, 0));
  ::close(made);
}

TEST_F(PoolSharing, ImportsPoolsFromTheirDescriptors) {
  CUmemoryPool made = nullptr;
  const auto import_from = [&](int from, int type = descriptor_type, unsigned long long flags = 0) {
    return driver->cuMemPoolImportFromShareableHandle(&made, as_os_handle(from),
                                                      static_cast<CUmemAllocationHandleType>(type), flags);
  };
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(import_from(null), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(import_from(-1), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(import_from(descriptor, CU_MEM_HANDLE_TYPE_NONE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(import_from(descriptor, CU_MEM_HANDLE_TYPE_FABRIC), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(import_from(descriptor, CU_MEM_HANDLE_TYPE_WIN32), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(import_from(descriptor, descriptor_type, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuMemPoolImportFromShareableHandle(nullptr, as_os_handle(descriptor), descriptor_type, 0));
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(import_from(descriptor), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(made));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolDestroy(made));
  ::close(null);
}

TEST_F(PoolSharing, KeepsMemoryAndPoolsApart) {
  const CUmemGenericAllocationHandle memory = driver.create(on_device(0, descriptor_type));
  int of_memory = -1;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemExportToShareableHandle(&of_memory, memory, descriptor_type, 0));
  CUmemoryPool made = nullptr;
  EXPECT_ANSWER(ERROR_NOT_SUPPORTED, *driver,
                cuMemPoolImportFromShareableHandle(&made, as_os_handle(of_memory), descriptor_type, 0));
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_ANSWER(ERROR_NOT_SUPPORTED, *driver,
                cuMemImportFromShareableHandle(&handle, as_os_handle(descriptor), descriptor_type));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemImportFromShareableHandle(&handle, as_os_handle(of_memory), descriptor_type));
  ::close(of_memory);
}

TEST_F(PoolSharing, ExportsWhatWasAllocatedFromAnExportedPool) {
  CUmemPoolPtrExportData data{};
  const CUmemoryPool kept = make();
  const CUdeviceptr early = allocate(kept), memory = allocate(pool);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportPointer(&data, early));
  ::close(exported(kept));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolExportPointer(&data, early));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportPointer(nullptr, memory));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportPointer(&data, memory + 8));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportPointer(&data, driver.mapped()));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuMemPoolExportPointer(&data, imported(imported(descriptor), told_of(memory))));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeAsync(memory, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolExportPointer(&data, memory));
  const CUdeviceptr last = allocate(pool);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolExportPointer(&data, last));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(pool));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolExportPointer(&data, last));
}

TEST_F(PoolSharing, ImportsPointersIntoThePoolThatTheyAreOf) {
  CUmemPoolPtrExportData data = told_of(allocate(pool)), nonsense{};
  CUdeviceptr made = 0;
  const CUmemoryPool there = imported(descriptor), wrong = imported(exported(make()));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolImportPointer(&made, wrong, &data));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolImportPointer(&made, pool, &data));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolImportPointer(&made, nullptr, &data));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolImportPointer(&made, there, &nonsense));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolImportPointer(&made, there, nullptr));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolImportPointer(nullptr, there, &data));
  EXPECT_EQ(made, 0U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolImportPointer(&made, there, &data));
}

TEST_F(PoolSharing, GivesNothingToWhoImports) {
  const CUmemoryPool there = imported(descriptor);
  CUdeviceptr made = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAllocFromPoolAsync(&made, 64, there, stream));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceSetMemPool(0, there));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocFromPoolAsync(&made, 64, pool, stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceSetMemPool(0, pool));
}

TEST_F(PoolSharing, HasRightsOfItsOwnWhereItWasImported) {
  const CUmemAccessDesc second = grant_device(1);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolSetAccess(pool, &second, 1));
  const CUmemoryPool there = imported(descriptor);
  const CUdeviceptr here = allocate(pool), seen = imported(there, told_of(here));
  (void)driver.use(1);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(here, 1, 64));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8(seen, 1, 64));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolSetAccess(there, &second, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(seen, 1, 64));
}

TEST_F(PoolSharing, HasNoAttributesWhereItWasImported) {
  const CUmemoryPool there = imported(descriptor);
  std::uint64_t value = 0;
  for (const CUmemoryPool each : {there, pool}) {
    const CUresult expected = each == there ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    EXPECT_EQ(driver->cuMemPoolGetAttribute(each, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), expected);
    EXPECT_EQ(driver->cuMemPoolSetAttribute(each, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value), expected);
    EXPECT_EQ(driver->cuMemPoolTrimTo(each, 0), expected);
  }
}

TEST_F(PoolSharing, KeepsMemoryOfWhichOthersWereTold) {
  const std::uint64_t before = driver.free_memory();
  free(allocate(pool));
  EXPECT_EQ(reserved(pool), 0U);
  const CUdeviceptr told = allocate(pool);
  CUmemPoolPtrExportData data = told_of(told);
  const CUdeviceptr other = allocate(pool, 40 * mebibyte);
  free(told);
  free(other);
  EXPECT_EQ(reserved(pool), 32 * mebibyte) << "one of two pieces";
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(reserved(pool), 32 * mebibyte);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(pool));
  EXPECT_EQ(driver.free_memory(), before - 32 * mebibyte) << "its descriptor is open";
  const CUmemoryPool there = imported(descriptor);
  free(imported(there, data));
  ::close(descriptor);
  EXPECT_EQ(driver.free_memory(), before - 32 * mebibyte) << "it is imported";
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(there));
  EXPECT_EQ(driver.free_memory(), before);
}

TEST_F(PoolSharing, IsOnePoolHoweverOftenItIsImported) {
  const CUmemoryPool there = imported(descriptor);
  EXPECT_EQ(imported(descriptor), there);
  CUdeviceptr seen = imported(there, told_of(allocate(pool)));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolDestroy(there));
  free(seen);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(there));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(there));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolDestroy(there));
}

TEST_F(PoolSharing, PlacesAllocationsOfSeveralPiecesInARow) {
  const CUmemoryPool there = imported(descriptor);
  (void)allocate(pool, 30 * mebibyte);
  const std::uint64_t bytes = 70 * mebibyte;
  const CUdeviceptr here = allocate(pool, bytes), seen = imported(there, told_of(here));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(here, 5, bytes));
  for (const std::uint64_t at : {std::uint64_t{0}, 2 * mebibyte, 34 * mebibyte, bytes - 1})
    EXPECT_EQ(driver.read(seen + at, 1), (std::vector<unsigned char>{5})) << at;
  free(seen);
  EXPECT_EQ(imported(there, told_of(here)), seen) << "it has its place";
}

TEST_F(PoolSharing, OneAllocationAtATimeHasTheBytes) {
  const CUmemoryPool there = imported(descriptor);
  const CUdeviceptr first = allocate(pool);
  CUmemPoolPtrExportData data = told_of(first);
  const CUdeviceptr seen = imported(there, data);
  EXPECT_EQ(imported(there, data), seen) << "once more";
  free(first);
  const CUdeviceptr second = allocate(pool, 8192);
  ASSERT_EQ(second, first);
  CUmemPoolPtrExportData later = told_of(second);
  CUdeviceptr made = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemPoolImportPointer(&made, there, &later));
  free(seen);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeAsync(seen, stream));
  EXPECT_EQ(imported(there, later), seen);
}

TEST_F(PoolSharing, LeavesNothingBehind) {
  const auto free_before = driver.free_memory();
  const CUmemoryPool there = imported(descriptor);
  const CUdeviceptr here = allocate(pool), seen = imported(there, told_of(here));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(pool));
  free(here);
  EXPECT_EQ(driver.free_memory(), free_before - 32 * mebibyte) << "it is imported";
  free(seen);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolDestroy(there));
  ::close(descriptor);
  EXPECT_EQ(driver.free_memory(), free_before);
  EXPECT_EQ(driver.live().pool_allocations, 0U);
  EXPECT_EQ(driver.live().allocations, 0U);
  EXPECT_EQ(driver.live().exports, 0U);
}

TEST_F(PoolSharing, HasDmaBufs) {
  const CUdeviceptr memory = allocate(pool, 2 * chunk), plain = allocate(make(0), 2 * chunk);
  int made = -1;
  const auto dma_buf = [&](CUdeviceptr address, std::uint64_t bytes) {
    return driver->cuMemGetHandleForAddressRange(&made, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  };
  for (const CUdeviceptr each : {memory, plain}) {
    EXPECT_EQ(dma_buf(each + 4096, 4096), CUDA_ERROR_INVALID_VALUE) << "it begins within the allocation";
    EXPECT_EQ(dma_buf(each, 33 * mebibyte), CUDA_ERROR_INVALID_VALUE) << "the pool has less";
    EXPECT_EQ(dma_buf(each, 2 * chunk + 4096), CUDA_SUCCESS) << "the pool has more";
    ::close(made);
    EXPECT_EQ(dma_buf(each, chunk), CUDA_SUCCESS) << "whatever may be exported of its pool";
    ::close(made);
  }
  EXPECT_EQ(dma_buf(allocate(make(0, CU_MEM_LOCATION_TYPE_HOST_NUMA), chunk), chunk), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PoolSharing, OfHostMemoryIsSeenByTheHost) {
  const CUmemoryPool host = make(descriptor_type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  const CUdeviceptr here = allocate(host);
  const CUmemoryPool there = imported(exported(host));
  CUmemPoolPtrExportData data = told_of(here);
  const CUdeviceptr seen = imported(there, data);
  *reinterpret_cast<volatile unsigned*>(here) = 77;
  EXPECT_EQ(*reinterpret_cast<volatile unsigned*>(seen), 77U);
  CUdeviceptr again = 0;
  EXPECT_ANSWER(ERROR_ALREADY_MAPPED, *driver, cuMemPoolImportPointer(&again, there, &data));
  free(seen);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolImportPointer(&again, there, &data));
}

TEST(PoolDescriptors, AreLimitedLikeThoseOfMemory) {
  Configuration few = strict();
  few.descriptor_limit = 1;
  const Emulated driver(few);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = descriptor_type;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  int first = -1, second = -1;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolCreate(&pool, &properties));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolExportToShareableHandle(&first, pool, descriptor_type, 0));
  EXPECT_ANSWER(ERROR_OPERATING_SYSTEM, *driver, cuMemPoolExportToShareableHandle(&second, pool, descriptor_type, 0));
  ::close(first);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemPoolExportToShareableHandle(&second, pool, descriptor_type, 0));
  ::close(second);
}

}  // namespace
}  // namespace cuvmm::emulator::test
