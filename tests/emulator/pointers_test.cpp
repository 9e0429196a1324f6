// What the driver says of pointers.
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

}  // namespace
}  // namespace cuvmm::emulator::test
