// Host memory of virtual memory management, touched by the process's own code; page-locked memory.
#include <sys/mman.h>

#include <cstring>

#include "child.hpp"
#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

constexpr auto none = CU_MEM_ACCESS_FLAGS_PROT_NONE;
constexpr auto read = CU_MEM_ACCESS_FLAGS_PROT_READ;

class HostVirtualMemory : public ::testing::TestWithParam<CUmemLocationType> {};
INSTANTIATE_TEST_SUITE_P(Locations, HostVirtualMemory,
                         ::testing::Values(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA),
                         [](const auto& instance) {
                           return instance.param == CU_MEM_LOCATION_TYPE_HOST ? "Host" : "HostNuma";
                         });

TEST_P(HostVirtualMemory, IsTheProcessesAfterAGrantAlone) {
  Emulated driver;
  const CUdeviceptr address = driver.mapped(chunk, on_host(GetParam()), grant_device(0));
  EXPECT_FALSE(readable(address));
  EXPECT_EQ(driver.grant(address, chunk, {{GetParam(), 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}), CUDA_SUCCESS);
  auto* bytes = reinterpret_cast<unsigned char*>(address);
  std::memset(bytes, 4, chunk);
  EXPECT_EQ(driver.read(address, chunk), std::vector<unsigned char>(chunk, 4)) << "the device sees what the host wrote";
  driver.write(address + 5, {1, 2, 3});
  EXPECT_EQ(bytes[6], 2) << "the host sees what the device wrote";
}

TEST_P(HostVirtualMemory, FaultsOnWritesToAReadOnlyGrant) {
  Emulated driver;
  const CUdeviceptr address = driver.mapped(chunk, on_host(GetParam()), grant_host());
  EXPECT_TRUE(writable(address));
  EXPECT_EQ(driver.grant(address, chunk, grant_host(read)), CUDA_SUCCESS);
  EXPECT_TRUE(readable(address));
  EXPECT_TRUE(dies_in_child(SIGSEGV, [&] { *reinterpret_cast<volatile unsigned char*>(address) = 1; }));
  EXPECT_EQ(driver.grant(address, chunk, grant_host()), CUDA_SUCCESS);
  EXPECT_TRUE(writable(address));
}

TEST_P(HostVirtualMemory, IsGoneAfterRevokingAndAfterUnmapping) {
  Emulated driver;
  const CUdeviceptr address = driver.mapped(chunk, on_host(GetParam()), grant_host());
  const CUdeviceptr other = driver.mapped(chunk, on_host(GetParam()), grant_host());
  EXPECT_EQ(driver.grant(address, chunk, grant_host(none)), CUDA_SUCCESS);
  EXPECT_FALSE(readable(address));
  EXPECT_EQ(driver.grant(address, chunk, grant_host()), CUDA_SUCCESS);
  EXPECT_TRUE(readable(address));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(address, chunk));
  EXPECT_FALSE(readable(address));
  EXPECT_TRUE(readable(other)) << "others stay";
}

TEST_P(HostVirtualMemory, IsNotTheDevicesWithoutAGrant) {
  Emulated driver;
  const CUdeviceptr address = driver.mapped(chunk, on_host(GetParam()), grant_host());
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8(address, 1, 1));
  EXPECT_EQ(driver.grant(address, chunk, grant_device(0)), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(address, 1, 1));
  EXPECT_TRUE(readable(address)) << "the host keeps its right";
}

TEST_P(HostVirtualMemory, AliasesShowTheSameBytesToTheProcess) {
  Emulated driver;
  const auto handle = driver.create(on_host(GetParam()));
  const CUdeviceptr range = driver.reserve(2 * chunk);
  driver.map(range, handle);
  driver.map(range + chunk, handle);
  EXPECT_EQ(driver.grant(range, 2 * chunk, grant_host()), CUDA_SUCCESS);
  *reinterpret_cast<volatile int*>(range + 64) = 77;
  EXPECT_EQ(*reinterpret_cast<volatile int*>(range + chunk + 64), 77);
}

TEST(DeviceMemory, IsNeverTheProcesses) {
  Emulated driver;
  const CUdeviceptr address = driver.mapped();
  EXPECT_FALSE(readable(address));
  EXPECT_EQ(driver.grant(address, chunk, grant_host()), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_FALSE(readable(address));
}

TEST(HostViews, AreGrantedToAllMappingsOfACallOrToNone) {
  Emulated driver;
  const CUdeviceptr range = driver.reserve(3 * chunk);
  const auto handle = driver.create(on_host(CU_MEM_LOCATION_TYPE_HOST));
  for (int index = 0; index < 3; ++index) driver.map(range + static_cast<CUdeviceptr>(index) * chunk, handle);
  // Something of the process lies where the last view would be.
  void* taken = ::mmap(reinterpret_cast<void*>(range + 2 * chunk), 4096, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(taken, reinterpret_cast<void*>(range + 2 * chunk));
  EXPECT_EQ(driver.grant(range, chunk, grant_host(read)), CUDA_SUCCESS);
  EXPECT_EQ(driver.grant(range, 3 * chunk, grant_host()), CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_NE(driver->explanation().find("OPERATING-SYSTEM"), std::string::npos);
  EXPECT_TRUE(readable(range));
  EXPECT_FALSE(writable(range)) << "as before the call";
  EXPECT_FALSE(readable(range + chunk));
  const CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, 0};
  unsigned long long flags = 99;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemGetAccess(&flags, &host, range + chunk));
  EXPECT_EQ(flags, 0U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemGetAccess(&flags, &host, range));
  EXPECT_EQ(flags, 1U);
  ASSERT_EQ(::munmap(taken, 4096), 0);
  EXPECT_EQ(driver.grant(range, 3 * chunk, grant_host()), CUDA_SUCCESS);
  EXPECT_TRUE(writable(range + 2 * chunk));
}

TEST(HostViews, GoWithTheDriver) {
  CUdeviceptr address = 0;
  {
    Emulated driver;
    address = driver.mapped(chunk, on_host(CU_MEM_LOCATION_TYPE_HOST), grant_host());
    EXPECT_TRUE(readable(address));
  }
  EXPECT_FALSE(readable(address));
}

TEST(PageLockedMemory, IsAllocatedAndFreed) {
  Emulated driver;
  void* memory = nullptr;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostAlloc(nullptr, 4096, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostAlloc(&memory, 0, 0));
  EXPECT_EQ(memory, nullptr);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeHost(nullptr));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostAlloc(&memory, 4096, 0x100));
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemHostAlloc(&memory, ~std::size_t{0} - 100, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostAlloc(&memory, 5000, CU_MEMHOSTALLOC_WRITECOMBINED));
  std::memset(memory, 1, 5000);
  unsigned flags = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostGetFlags(&flags, memory));
  EXPECT_EQ(flags, CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_DEVICEMAP);
  CUdeviceptr address = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostGetDevicePointer(&address, memory, 0));
  EXPECT_EQ(address, reinterpret_cast<CUdeviceptr>(memory));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(address, 9, 5000));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8(address, 9, 5001));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeHost(static_cast<char*>(memory) + 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeHost(memory));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeHost(memory));
}

TEST(PageLockedMemory, IsNoMemoryOfADevicesRegisters) {
  Emulated driver;
  std::vector<unsigned char> memory(4096);
  for (const unsigned others : {0U, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP}) {
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                  cuMemHostRegister(memory.data(), memory.size(), others | CU_MEMHOSTREGISTER_IOMEMORY));
    EXPECT_ANSWER(SUCCESS, *driver, cuMemHostRegister(memory.data(), memory.size(), others));
    EXPECT_ANSWER(SUCCESS, *driver, cuMemHostUnregister(memory.data()));
  }
}

TEST(PageLockedMemory, IsRegisteredOnceAndUnregistered) {
  Emulated driver;
  std::vector<unsigned char> memory(10000);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostRegister(nullptr, 100, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostRegister(memory.data(), 0, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostRegister(memory.data(), ~std::size_t{0}, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostRegister(memory.data(), 5000, CU_MEMHOSTREGISTER_PORTABLE));
  EXPECT_ANSWER(ERROR_HOST_MEMORY_ALREADY_REGISTERED, *driver, cuMemHostRegister(memory.data() + 4999, 10, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostRegister(memory.data() + 5000, 10, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostUnregister(memory.data() + 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeHost(memory.data()));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostUnregister(memory.data()));
  EXPECT_ANSWER(ERROR_HOST_MEMORY_NOT_REGISTERED, *driver, cuMemHostUnregister(memory.data()));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostUnregister(memory.data() + 5000));
}

TEST(PageLockedMemory, IsRegisteredOnlyWhereTheProcessHasItMapped) {
  Emulated driver;
  constexpr std::size_t page = 4096;
  auto* const pages =
      static_cast<char*>(::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(::munmap(pages + 2 * page, page), 0);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostRegister(pages, 3 * page, 0));
  EXPECT_NE(driver->explanation().find("HOST-PAGES"), std::string::npos) << driver->explanation();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostRegister(pages, 2 * page, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostUnregister(pages));
  ASSERT_EQ(::mprotect(pages + page, page, PROT_READ), 0);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostRegister(pages, 2 * page, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostRegister(pages, 2 * page, CU_MEMHOSTREGISTER_READ_ONLY));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostUnregister(pages));
  ::munmap(pages, 2 * page);
  void* const mapping = reinterpret_cast<void*>(driver.mapped());
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostRegister(mapping, page, 0));
}

// Work of other contexts that uses memory of a context is done before the context's end takes the memory.
TEST(PageLockedMemory, IsWaitedForWhereOtherContextsUseItWhenItsContextEnds) {
  for (const bool registered : {false, true}) {
    Configuration configuration = strict();
    configuration.scheduler = Scheduler::stepped;
    Emulated driver(configuration);
    const CUdeviceptr target = driver.mapped();
    CUstream stream = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUcontext created = nullptr;
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&created, 0, 0));
    std::vector<unsigned char> own(4096);
    void* memory = own.data();
    if (registered)
      EXPECT_ANSWER(SUCCESS, *driver, cuMemHostRegister(memory, own.size(), CU_MEMHOSTREGISTER_PORTABLE));
    else
      EXPECT_ANSWER(SUCCESS, *driver, cuMemHostAlloc(&memory, own.size(), CU_MEMHOSTALLOC_PORTABLE));
    std::memset(memory, 5, own.size());
    driver.use(0);
    EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyHtoDAsync(target, memory, own.size(), stream));
    EXPECT_TRUE(driver->engine().first_unfinished_touching(target, own.size()));
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(created));
    EXPECT_FALSE(driver->engine().first_unfinished_touching(target, own.size()));
    EXPECT_EQ(driver.read(target, own.size()), std::vector<unsigned char>(own.size(), 5));
    EXPECT_EQ(driver.live().host_ranges, 0U);
  }
}

TEST(PageLockedMemory, IsGivenBackWithoutACurrentContext) {
  Emulated driver;
  std::vector<unsigned char> there(4096);
  void* memory = nullptr;
  CUdeviceptr allocation = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostAlloc(&memory, 64, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostRegister(there.data(), there.size(), 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&allocation, 64));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(nullptr));
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuMemHostAlloc(&memory, 64, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFreeHost(memory));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostUnregister(there.data()));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(allocation));
}

}  // namespace
}  // namespace cuvmm::emulator::test
