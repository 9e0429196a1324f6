// What the driver says of pointers.
#include <array>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

template <class Value>
Value attribute(Emulated& driver, CUpointer_attribute which, CUdeviceptr pointer) {
  Value value{};
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&value, which, pointer));
  return value;
}

CUresult ask(Emulated& driver, CUpointer_attribute which, CUdeviceptr pointer) {
  unsigned char room[64];
  return driver->cuPointerGetAttribute(room, which, pointer);
}

TEST(PointerAttributes, TellMappingAndReservationApart) {
  Emulated driver(strict(2));
  const CUdeviceptr range = driver.reserve(4 * chunk);
  CUmemAllocationProp properties = on_device(1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  properties.allocFlags.gpuDirectRDMACapable = 1;
  const auto handle = driver.create(properties, 2 * chunk);
  EXPECT_EQ(ask(driver, CU_POINTER_ATTRIBUTE_MAPPED, range + chunk), CUDA_ERROR_INVALID_VALUE);
  driver.map(range + chunk, handle, 2 * chunk);
  const CUdeviceptr inside = range + 2 * chunk + 100;
  EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(attribute<int>(driver, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), 1);
  EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_MAPPED, inside), 1U);
  EXPECT_EQ(attribute<CUdeviceptr>(driver, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), range);
  EXPECT_EQ(attribute<std::size_t>(driver, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), 4 * chunk);
  EXPECT_EQ(attribute<CUdeviceptr>(driver, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside), range + chunk);
  EXPECT_EQ(attribute<std::size_t>(driver, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside), 2 * chunk);
  EXPECT_EQ(attribute<unsigned long long>(driver, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside), 1U);
  EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, inside), 1U);
  EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside), 0U);
  EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside), 0U);
  EXPECT_EQ(driver.grant(range + chunk, 2 * chunk, grant_device(0, CU_MEM_ACCESS_FLAGS_PROT_READ)), CUDA_SUCCESS);
  EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside), 1U);
  EXPECT_EQ(ask(driver, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(driver, static_cast<CUpointer_attribute>(99), inside), CUDA_ERROR_INVALID_VALUE);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MAPPED, inside));
  CUdeviceptr base = 0;
  std::size_t size = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemGetAddressRange(&base, &size, inside));
  EXPECT_EQ(base, range + chunk);
  EXPECT_EQ(size, 2 * chunk);
  EXPECT_ANSWER(ERROR_NOT_FOUND, *driver, cuMemGetAddressRange(&base, &size, range));
}

TEST(PointerAttributes, KnowHeapAndHostMemory) {
  Emulated driver;
  const CUcontext context = driver.use(0);
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 1000));
  EXPECT_EQ(attribute<CUcontext>(driver, CU_POINTER_ATTRIBUTE_CONTEXT, memory + 999), context);
  EXPECT_EQ(attribute<CUdeviceptr>(driver, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 999), memory);
  EXPECT_EQ(ask(driver, CU_POINTER_ATTRIBUTE_CONTEXT, memory + 1000), CUDA_ERROR_INVALID_VALUE);
  void* host = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocHost(&host, 1000));
  const auto address = reinterpret_cast<CUdeviceptr>(host);
  EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1), CU_MEMORYTYPE_HOST);
  EXPECT_EQ(attribute<CUdeviceptr>(driver, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 1), address + 1);
  const CUdeviceptr host_mapping = driver.mapped(chunk, on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host_mapping), CU_MEMORYTYPE_HOST);
  EXPECT_EQ(attribute<CUcontext>(driver, CU_POINTER_ATTRIBUTE_CONTEXT, host_mapping), nullptr);
}

TEST(PointerAttributes, OfHostMemoryTellTheDeviceThatWasCurrent) {
  Emulated driver{strict(2)};
  alignas(4096) std::array<char, 4096> own{};
  for (const int device : {0, 1}) {
    driver.use(device);
    void* allocated = nullptr;
    CUdeviceptr managed = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocHost(&allocated, 64));
    EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
    EXPECT_ANSWER(SUCCESS, *driver, cuMemHostRegister(own.data(), own.size(), 0));
    driver.use(0);
    for (const CUdeviceptr each :
         {reinterpret_cast<CUdeviceptr>(allocated), managed, reinterpret_cast<CUdeviceptr>(own.data())})
      EXPECT_EQ(attribute<int>(driver, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, each), device);
    EXPECT_ANSWER(SUCCESS, *driver, cuMemHostUnregister(own.data()));
  }
}

TEST(PointerAttributes, AskedForTogetherAnswerZerosForUnknownPointers) {
  Emulated driver;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  unsigned type = 9;
  int ordinal = 9;
  CUdeviceptr start = 9;
  void* data[] = {&type, &ordinal, &start};
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuPointerGetAttributes(0, which, data, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttributes(3, which, data, 0x1234));
  EXPECT_EQ(type, 0U);
  EXPECT_EQ(ordinal, -2);
  EXPECT_EQ(start, 0U);
  const CUdeviceptr known = driver.mapped();
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttributes(3, which, data, known + 5));
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(start, known);
}

TEST(PointerAttributes, AskedForTogetherMustExist) {
  Emulated driver;
  const CUdeviceptr known = driver.mapped();
  unsigned long long words[2] = {};
  void* data[] = {&words[0], &words[1]};
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, static_cast<CUpointer_attribute>(22)};
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuPointerGetAttributes(2, which, data, known));
  which[1] = static_cast<CUpointer_attribute>(21);
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttributes(2, which, data, known));
}

TEST(PointerAttributes, OfAMappingThatTheDeviceMayNotTouchLackItsPointer) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped(chunk, on_device(0), grant_device(0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
  CUdeviceptr base = 0;
  EXPECT_EQ(ask(driver, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, range), CUDA_ERROR_INVALID_VALUE);
  EXPECT_ANSWER(ERROR_NOT_FOUND, *driver, cuMemGetAddressRange(&base, nullptr, range + 5));
  unsigned flags = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemHostGetFlags(&flags, reinterpret_cast<void*>(range)));
  EXPECT_EQ(driver.grant(range, chunk, grant_device(0)), CUDA_SUCCESS);
  EXPECT_EQ(attribute<CUdeviceptr>(driver, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, range), range);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemGetAddressRange(&base, nullptr, range + 5));
  EXPECT_EQ(base, range);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostGetFlags(&flags, reinterpret_cast<void*>(range)));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
}

TEST(PointerAttributes, SayThatCopiesAreSynchronousOnceTokensWereTaken) {
  Emulated driver;
  const CUdeviceptr mapping = driver.mapped();
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 3 * chunk));
  for (const CUdeviceptr pointer : {mapping, memory}) {
    EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer), 0U);
    EXPECT_EQ(ask(driver, CU_POINTER_ATTRIBUTE_P2P_TOKENS, pointer + 9), CUDA_SUCCESS);
    EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer), 1U);
  }
  // New memory at the same addresses has given no tokens.
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(mapping, chunk));
  driver.map(mapping, driver.create(on_device(0)));
  EXPECT_EQ(attribute<unsigned>(driver, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, mapping), 0U);
  const CUdeviceptr host = driver.mapped(chunk, on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  EXPECT_EQ(ask(driver, CU_POINTER_ATTRIBUTE_P2P_TOKENS, host), CUDA_ERROR_INVALID_VALUE);
}

TEST(PointerAttributes, OfHostMappingsTellItsHostPointerOnceTheHostMayTouchIt) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped(chunk, on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  EXPECT_EQ(ask(driver, CU_POINTER_ATTRIBUTE_HOST_POINTER, range), CUDA_ERROR_INVALID_VALUE);
  const CUmemAccessDesc host{{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(driver.grant(range, chunk, host), CUDA_SUCCESS);
  EXPECT_EQ(attribute<CUdeviceptr>(driver, CU_POINTER_ATTRIBUTE_HOST_POINTER, range), range);
}

TEST(AccessRights, OfHeapMemoryAreNone) {
  Emulated driver;
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 64));
  const CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  unsigned long long flags = 99;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemGetAccess(&flags, &device, 0));
  EXPECT_EQ(flags, 99U);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemGetAccess(&flags, &device, memory));
  EXPECT_EQ(flags, 0U);
}

}  // namespace
}  // namespace cuvmm::emulator::test
