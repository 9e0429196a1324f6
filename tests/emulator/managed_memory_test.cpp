// Managed memory, and small questions to devices, contexts and streams.
#include <cstring>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

TEST(ManagedMemory, IsOneMemoryToProcessAndDevices) {
  Emulated driver(strict(2));
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocManaged(&memory, 10000, CU_MEM_ATTACH_GLOBAL));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(memory, 4, 10000));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  auto* const bytes = reinterpret_cast<unsigned char*>(memory);
  EXPECT_EQ(bytes[9999], 4);
  bytes[0] = 9;
  driver.use(1);
  EXPECT_EQ(driver.read(memory, 2), (std::vector<unsigned char>{9, 4}));
  EXPECT_EQ(driver.live().host_ranges, 1U);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFreeHost(bytes));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(memory));
  EXPECT_EQ(driver.live().host_ranges, 0U);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFree(memory));
}

TEST(ManagedMemory, SaysWhatItIs) {
  Emulated driver;
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAllocManaged(&memory, 100, CU_MEM_ATTACH_HOST));
  const auto word = [&](CUpointer_attribute attribute) {
    unsigned value = 99;
    EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&value, attribute, memory + 1));
    return value;
  };
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_IS_MANAGED) & 0xFF, 1U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0U);
  EXPECT_EQ(word(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 1U);
  unsigned flags = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostGetFlags(&flags, reinterpret_cast<void*>(memory)));
  EXPECT_EQ(flags, unsigned{CU_MEMHOSTALLOC_DEVICEMAP});
  EXPECT_ANSWER(ERROR_NOT_SUPPORTED, *driver, cuMemFreeAsync(memory, nullptr));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(memory));
}

TEST(ManagedMemory, WantsASizeAndAWayToAttach) {
  Emulated driver;
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAllocManaged(nullptr, 100, CU_MEM_ATTACH_GLOBAL));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAllocManaged(&memory, 0, CU_MEM_ATTACH_GLOBAL));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAllocManaged(&memory, 100, CU_MEM_ATTACH_SINGLE));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAllocManaged(&memory, 100, 0));
}

TEST(Questions, DevicesAreFoundByTheirPlace) {
  Emulated driver(strict(3));
  for (int ordinal = 0; ordinal < 3; ++ordinal) {
    char place[20] = {};
    CUdevice device = -1;
    EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetPCIBusId(place, sizeof place, ordinal));
    EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetByPCIBusId(&device, place));
    EXPECT_EQ(device, ordinal);
    EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetByPCIBusId(&device, place + std::strlen("0000:")));
    EXPECT_EQ(device, ordinal) << "without its domain";
  }
  CUdevice device = -1;
  EXPECT_ANSWER(ERROR_INVALID_DEVICE, *driver, cuDeviceGetByPCIBusId(&device, "0000:77:00.0"));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceGetByPCIBusId(&device, "nowhere"));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceGetByPCIBusId(&device, nullptr));
}

TEST(Questions, ContextsAndStreamsHaveNumbers) {
  Emulated driver;
  const CUcontext primary = driver.use(0);
  CUcontext made = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&made, 0, 0));
  unsigned long long first = 0, second = 0, current = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetId(primary, &first));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetId(made, &second));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetId(nullptr, &current));
  EXPECT_NE(first, second);
  EXPECT_EQ(second, current);
  unsigned version = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetApiVersion(made, &version));
  EXPECT_EQ(version, 3020U);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(made));
  EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuCtxGetId(made, &second));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuCtxGetId(primary, nullptr));
}

TEST(Questions, StreamsKeepTheirPriority) {
  Emulated driver;
  int least = 9, greatest = 9, kept = 9;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_LT(greatest, least);
  CUstream urgent = nullptr, ordinary = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreateWithPriority(&urgent, 0, greatest - 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&ordinary, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamGetPriority(urgent, &kept));
  EXPECT_EQ(kept, greatest) << "as near as there is";
  unsigned long long first = 0, second = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamGetId(urgent, &first));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamGetId(ordinary, &second));
  EXPECT_NE(first, second);
  CUgraph graph = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamBeginCapture(ordinary, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamGetPriority(ordinary, &kept));
  EXPECT_EQ(kept, 0);
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_UNSUPPORTED, *driver, cuStreamGetId(ordinary, &second));
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_INVALIDATED, *driver, cuStreamGetPriority(ordinary, &kept));
  EXPECT_ANSWER(ERROR_STREAM_CAPTURE_INVALIDATED, *driver, cuStreamEndCapture(ordinary, &graph));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamGetPriority(urgent, nullptr));
  EXPECT_ANSWER(ERROR_INVALID_HANDLE, *driver, cuStreamGetPriority(reinterpret_cast<CUstream>(&kept), &kept));
}

}  // namespace
}  // namespace cuvmm::emulator::test
