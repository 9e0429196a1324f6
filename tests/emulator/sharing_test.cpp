// Descriptors, fabric handles and dma-bufs within one process.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

constexpr auto descriptor_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

int export_descriptor(Emulated& driver, CUmemGenericAllocationHandle handle) {
  int descriptor = -1;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemExportToShareableHandle(&descriptor, handle, descriptor_type, 0));
  return descriptor;
}

void* as_pointer(int descriptor) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
}

CUmemGenericAllocationHandle import_descriptor(Emulated& driver, int descriptor) {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemImportFromShareableHandle(&handle, as_pointer(descriptor), descriptor_type));
  return handle;
}

TEST(Descriptors, CarryMemoryToANewHandle) {
  Emulated driver;
  const auto handle = driver.create(on_device(0, descriptor_type));
  const CUdeviceptr here = driver.reserve(), there = driver.reserve();
  driver.map(here, handle);
  EXPECT_EQ(driver.grant(here, chunk, grant_device(0)), CUDA_SUCCESS);
  driver.write(here, {1, 2, 3});
  const int descriptor = export_descriptor(driver, handle);
  EXPECT_NE(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
  const auto imported = import_descriptor(driver, descriptor);
  EXPECT_NE(imported, handle);
  EXPECT_GE(::fcntl(descriptor, F_GETFD), 0) << "it stays open";
  EXPECT_EQ(driver.live().allocations, 1U) << "the memory is the same";
  driver.map(there, imported);
  EXPECT_EQ(driver.grant(there, chunk, grant_device(0)), CUDA_SUCCESS);
  EXPECT_EQ(driver.read(there, 3), (std::vector<unsigned char>{1, 2, 3}));
  int again = -1;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemExportToShareableHandle(&again, imported, descriptor_type, 0));
  ASSERT_EQ(::close(descriptor), 0);
}

TEST(Descriptors, KeepMemoryAloneAndGiveItBackWhenTheLastCopyIsClosed) {
  Emulated driver;
  const auto nothing = driver.live();
  const std::size_t free_before = driver.free_memory();
  const auto handle = driver.create(on_device(0, descriptor_type));
  const int first = export_descriptor(driver, handle);
  const int second = export_descriptor(driver, handle);
  EXPECT_NE(first, second);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
  EXPECT_EQ(driver.free_memory(), free_before - chunk);
  const int copy = ::dup(first);
  ASSERT_EQ(::close(first), 0);
  ASSERT_EQ(::close(second), 0);
  EXPECT_EQ(driver.free_memory(), free_before - chunk) << "a copy of the descriptor is left";
  const auto imported = import_descriptor(driver, copy);
  ASSERT_EQ(::close(copy), 0);
  EXPECT_EQ(driver.free_memory(), free_before - chunk) << "the imported handle is left";
  EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(imported));
  EXPECT_EQ(driver.free_memory(), free_before);
  EXPECT_EQ(driver.live(), nothing);
}

TEST(Descriptors, AreImportedOnlyIfTheyAreExportsThatAreOpen) {
  Emulated driver;
  CUmemGenericAllocationHandle handle = 0;
  const int unrelated = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  for (const int descriptor : {-1, unrelated, ends[0], 1000000})
    EXPECT_ANSWER(ERROR_UNKNOWN, *driver,
                  cuMemImportFromShareableHandle(&handle, as_pointer(descriptor), descriptor_type));
  for (const int opened : {unrelated, ends[0], ends[1]}) ::close(opened);
  const int descriptor = export_descriptor(driver, driver.create(on_device(0, descriptor_type)));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuMemImportFromShareableHandle(nullptr, as_pointer(descriptor), descriptor_type));
  for (const auto& [type, answer] : {std::pair{0, CUDA_ERROR_INVALID_VALUE},
                                     {2, CUDA_ERROR_NOT_SUPPORTED},
                                     {4, CUDA_ERROR_NOT_SUPPORTED},
                                     {8, CUDA_ERROR_NOT_SUPPORTED},
                                     {9, CUDA_ERROR_INVALID_VALUE}})
    EXPECT_EQ(driver->cuMemImportFromShareableHandle(&handle, as_pointer(descriptor),
                                                     static_cast<CUmemAllocationHandleType>(type)),
              answer);
  (void)import_descriptor(driver, descriptor);
  ::close(descriptor);
  EXPECT_ANSWER(ERROR_UNKNOWN, *driver,
                cuMemImportFromShareableHandle(&handle, as_pointer(descriptor), descriptor_type));
}

TEST(Descriptors, BelongToOneDriver) {
  Emulated driver, other;
  const int descriptor = export_descriptor(driver, driver.create(on_device(0, descriptor_type)));
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_ANSWER(ERROR_UNKNOWN, *other,
                cuMemImportFromShareableHandle(&handle, as_pointer(descriptor), descriptor_type));
  (void)import_descriptor(driver, descriptor);
  ::close(descriptor);
}

TEST(Descriptors, AreLimited) {
  Configuration configuration = strict();
  configuration.descriptor_limit = 2;
  Emulated driver(configuration);
  const auto handle = driver.create(on_device(0, descriptor_type));
  const int first = export_descriptor(driver, handle), second = export_descriptor(driver, handle);
  int third = -1;
  EXPECT_ANSWER(ERROR_OPERATING_SYSTEM, *driver, cuMemExportToShareableHandle(&third, handle, descriptor_type, 0));
  EXPECT_NE(driver->explanation().find("DESCRIPTOR-LIMIT"), std::string::npos) << driver->explanation();
  EXPECT_EQ(third, -1);
  ::close(first);
  third = export_descriptor(driver, handle);
  ::close(second);
  ::close(third);
}

TEST(FabricHandles, CarryMemoryWhereThereIsAnImexChannel) {
  Configuration configuration = strict();
  configuration.profile = *find_profile("gb200");
  Emulated driver(configuration);
  for (const CUmemAllocationProp& properties :
       {on_device(0, CU_MEM_HANDLE_TYPE_FABRIC), on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_HANDLE_TYPE_FABRIC)}) {
    const auto handle = driver.create(properties);
    CUmemFabricHandle fabric{};
    EXPECT_ANSWER(SUCCESS, *driver, cuMemExportToShareableHandle(&fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    CUmemGenericAllocationHandle imported = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemImportFromShareableHandle(&imported, &fabric, CU_MEM_HANDLE_TYPE_FABRIC));
    EXPECT_NE(imported, handle);
    EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
    EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(imported));
    // A fabric handle keeps nothing alive.
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                  cuMemImportFromShareableHandle(&imported, &fabric, CU_MEM_HANDLE_TYPE_FABRIC));
    fabric.data[0] ^= 1;
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                  cuMemImportFromShareableHandle(&imported, &fabric, CU_MEM_HANDLE_TYPE_FABRIC));
  }
}

TEST(DmaBufs, KeepMemoryButCannotBeImported) {
  Emulated driver;
  const CUdeviceptr address = driver.mapped(2 * chunk);
  const std::size_t free_before = driver.free_memory();
  int descriptor = -1;
  const auto get = [&](CUdeviceptr where, std::size_t bytes, int type = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) {
    return driver->cuMemGetHandleForAddressRange(&descriptor, where, bytes, static_cast<CUmemRangeHandleType>(type), 0);
  };
  EXPECT_EQ(get(address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(address + 1, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(address, 4097), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(address + 4096, 2 * chunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(address, 4096, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                cuMemGetHandleForAddressRange(nullptr, address, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  ASSERT_EQ(get(address + 4096, 8192), CUDA_SUCCESS) << driver->explanation();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_ANSWER(ERROR_UNKNOWN, *driver,
                cuMemImportFromShareableHandle(&handle, as_pointer(descriptor), descriptor_type));
  driver.unmap_and_free(address, 2 * chunk);
  EXPECT_EQ(driver.free_memory(), free_before);
  ::close(descriptor);
  EXPECT_EQ(driver.free_memory(), free_before + 2 * chunk);
}

TEST(DmaBufs, AreMadeOfHeapMemoryToo) {
  Emulated driver;
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 3 * mebibyte));
  int descriptor = -1;
  EXPECT_ANSWER(
      SUCCESS, *driver,
      cuMemGetHandleForAddressRange(&descriptor, memory, 3 * mebibyte, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  ::close(descriptor);
  Configuration configuration = strict();
  configuration.profile = *find_profile("no-rdma");
  Emulated without(configuration);
  EXPECT_ANSWER(
      ERROR_NOT_SUPPORTED, *without,
      cuMemGetHandleForAddressRange(&descriptor, without.mapped(), chunk, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

TEST(LegacyIpc, IsNotForVirtualMemory) {
  Emulated driver;
  CUipcMemHandle handle{};
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuIpcGetMemHandle(&handle, driver.mapped()));
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 4096));
  EXPECT_ANSWER(SUCCESS, *driver, cuIpcGetMemHandle(&handle, memory + 100));
  CUdeviceptr opened = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuIpcOpenMemHandle(&opened, handle, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuIpcOpenMemHandle(&opened, CUipcMemHandle{}, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuIpcOpenMemHandle(&opened, handle, 2));
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuIpcOpenMemHandle(&opened, handle, 5));
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuIpcOpenMemHandle(&opened, handle, 3));
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuIpcOpenMemHandle(&opened, handle, 1));
  EXPECT_NE(driver->explanation().find("IPC-OTHER-PROCESS"), std::string::npos) << driver->explanation();
}

}  // namespace
}  // namespace cuvmm::emulator::test
