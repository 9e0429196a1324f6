// Contexts, what belongs to them, and errors that stay with them.
#include <thread>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

TEST(HeapMemory, IsSubAllocatedAndFreed) {
  Emulated driver;
  const std::size_t free_before = driver.free_memory();
  CUdeviceptr first = 0, second = 0, large = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAlloc(&first, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAlloc(nullptr, 1));
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemAlloc(&first, free_before + 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&first, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&second, 1));
  EXPECT_EQ(second - first, 512U);
  EXPECT_EQ(driver.free_memory(), free_before - chunk);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&large, 3 * mebibyte));
  EXPECT_EQ(driver.free_memory(), free_before - 3 * chunk);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(first, 5, 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8(first, 5, 2));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFree(first + 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFree(driver.mapped()));
  for (const CUdeviceptr memory : {first, second, large}) EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(memory));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFree(first));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemFree(0));
}

TEST(Contexts, FormAStackPerThread) {
  Emulated driver(strict(2));
  const CUcontext primary = driver.use(0);
  CUcontext created = nullptr, current = nullptr;
  EXPECT_ANSWER(ERROR_INVALID_DEVICE, *driver, cuCtxCreate(&created, 0, 2));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuCtxCreate(&created, 0x8000, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&created, CU_CTX_SCHED_SPIN, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetCurrent(&current));
  EXPECT_EQ(current, created);
  CUdevice device = -1;
  unsigned flags = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetDevice(&device));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetFlags(&flags));
  EXPECT_EQ(device, 1);
  EXPECT_EQ(flags, static_cast<unsigned>(CU_CTX_SCHED_SPIN));
  std::thread([&] {
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetCurrent(&current));
    EXPECT_EQ(current, nullptr);
    EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuCtxGetDevice(&device));
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxPushCurrent(created));
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetDevice(&device));
  }).join();
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxPopCurrent(&current));
  EXPECT_EQ(current, created);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxPopCurrent(&current));
  EXPECT_EQ(current, primary);
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuCtxPopCurrent(&current));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuCtxPushCurrent(nullptr));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuCtxDestroy(nullptr));
}

// The objects go; their handles are still told from those that never were, or were destroyed by themselves.
TEST(Contexts, TakeTheirStreamsAndEventsWithThem) {
  Emulated driver;
  CUstream kept = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&kept, 0));
  const auto before = driver->live_handles();
  CUcontext created = nullptr;
  CUstream streams[3] = {};
  CUevent events[3] = {};
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&created, 0, 0));
  for (CUstream& stream : streams) EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, 0));
  for (CUevent& event : events) EXPECT_ANSWER(SUCCESS, *driver, cuEventCreate(&event, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuEventRecord(events[0], streams[0]));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamDestroy(streams[1]));
  EXPECT_ANSWER(SUCCESS, *driver, cuEventDestroy(events[1]));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(created));
  EXPECT_EQ(driver->live_handles(), before);
  driver.use(0);
  for (const int index : {0, 2}) {
    EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuStreamQuery(streams[index]));
    EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuStreamSynchronize(streams[index]));
    EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuStreamDestroy(streams[index]));
    EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuEventQuery(events[index]));
    EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuEventRecord(events[index], kept));
    EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuEventDestroy(events[index]));
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamWaitEvent(kept, events[index], 0));
  }
  EXPECT_ANSWER(ERROR_INVALID_HANDLE, *driver, cuStreamQuery(streams[1]));
  EXPECT_ANSWER(ERROR_INVALID_HANDLE, *driver, cuEventQuery(events[1]));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(kept));
}

TEST(HandleTable, KeepsOneEntryForHandlesInARowThatWereReplaced) {
  api::HandleTable<CUstream, int> table;
  std::vector<CUstream> handles;
  handles.reserve(10);
  for (int number = 0; number < 10; ++number) handles.push_back(table.add(std::make_shared<int>(number)));
  EXPECT_NE(table.take(handles[6]), nullptr);
  const auto stand_in = std::make_shared<int>(-1);
  table.replace_all_if([](int number) { return number >= 2 && number != 8; }, stand_in);
  EXPECT_EQ(table.size(), 3U);     // 0, 1, 8
  EXPECT_EQ(table.entries(), 6U);  // 0, 1, 2 to 5, 7, 8, 9
  for (const int index : {2, 3, 4, 5, 7, 9}) EXPECT_EQ(table.find(handles[static_cast<std::size_t>(index)]), stand_in);
  for (const int index : {0, 1, 8}) EXPECT_EQ(*table.find(handles[static_cast<std::size_t>(index)]), index);
  EXPECT_EQ(table.find(handles[6]), nullptr);
  EXPECT_EQ(table.take(handles[3]), nullptr);
  EXPECT_EQ(table.find(reinterpret_cast<CUstream>(reinterpret_cast<std::uintptr_t>(handles[3]) + 1)), nullptr);
  EXPECT_EQ(table.find(nullptr), nullptr);
}

TEST(Contexts, AreRecognisedWhenDestroyed) {
  Emulated driver;
  const CUcontext primary = driver.use(0);
  CUcontext created = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&created, 0, 0));
  CUstream stream = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxPushCurrent(created));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(created));
  // It was current twice; one place on the stack is left.
  EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuCtxSynchronize());
  EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuStreamSynchronize(stream));
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuCtxDestroy(created));
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuCtxSetCurrent(created));
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuCtxDestroy(primary));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(primary));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
}

TEST(Contexts, TakeTheirMemoryAndModulesWithThem) {
  Emulated driver;
  const auto nothing = driver.live();
  const std::size_t free_before = driver.free_memory();
  CUcontext created = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&created, 0, 0));
  CUdeviceptr memory = 0;
  void* host = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 100));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 3 * chunk));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostAlloc(&host, 100, 0));
  const CUfunction fill = driver.function("cuvmm_fill");
  const CUdeviceptr range = driver.mapped();
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(created));
  EXPECT_EQ(driver.free_memory(), free_before - chunk) << "virtual memory belongs to no context";
  EXPECT_EQ(driver.launch(fill, nullptr, range, std::uint64_t{8}, std::uint64_t{0}), CUDA_ERROR_INVALID_HANDLE);
  driver.unmap_and_free(range);
  EXPECT_EQ(driver.live(), nothing);
}

TEST(PrimaryContexts, LiveWhileTheyAreRetained) {
  Emulated driver(strict(2));
  unsigned flags = 9;
  int active = 9;
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuDevicePrimaryCtxRelease(1));
  CUcontext first = nullptr, second = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRetain(&first, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRetain(&second, 1));
  EXPECT_EQ(first, second);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(first));
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 100));
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRelease(1));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRelease(1));
  EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuCtxSynchronize());
  EXPECT_EQ(driver.live().heap_allocations, 0U);
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRetain(&second, 1));
  EXPECT_EQ(first, second);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
}

TEST(PrimaryContexts, EndAtAResetAndBeginEmptyWhenRetainedAgain) {
  Emulated driver;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetCurrent(&context));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 100));
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxReset(0));
  EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuCtxSynchronize());
  EXPECT_EQ(driver.live().heap_allocations, 0U);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemFree(memory));
  CUcontext again = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRetain(&again, 0));
  EXPECT_EQ(again, context);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
}

TEST(PrimaryContexts, TakeFlagsThatGoTogether) {
  Emulated driver;
  unsigned flags = 0;
  for (const unsigned wrong : {3U, 8U, 256U})
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDevicePrimaryCtxSetFlags(0, wrong));
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetFlags(&flags));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_CTX_SCHED_YIELD | CU_CTX_MAP_HOST));
}

// A driver that keeps what it warns of.
struct Warned {
  std::vector<std::string> warnings;
  Configuration faithful() {
    Configuration configuration;
    configuration.on_warning = [this](const std::string& line) { warnings.push_back(line); };
    return configuration;
  }
};

TEST(DeadContexts, CannotBeMadeCurrentInStrictMode) {
  Emulated driver;
  CUcontext created = nullptr, current = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&created, 0, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(created));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxPushCurrent(created));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxPopCurrent(nullptr));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(created));
  for (const CUcontext dead : {created, reinterpret_cast<CUcontext>(&created)}) {
    EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuCtxSetCurrent(dead));
    EXPECT_NE(driver->explanation().find("CONTEXT-LIVE"), std::string::npos) << driver->explanation();
    EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuCtxPushCurrent(dead));
  }
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetCurrent(&current));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
}

TEST(DeadContexts, CanBeMadeCurrentInFaithfulModeWithOneWarning) {
  Warned warned;
  Emulated driver(warned.faithful());
  CUcontext created = nullptr, current = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&created, 0, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(created));
  for (const CUcontext dead : {created, reinterpret_cast<CUcontext>(&created)}) {
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(dead));
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetCurrent(&current));
    EXPECT_EQ(current, dead);
    EXPECT_ANSWER(ERROR_CONTEXT_IS_DESTROYED, *driver, cuCtxSynchronize());
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxPushCurrent(dead));
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxPopCurrent(&current));
    EXPECT_EQ(current, dead);
  }
  ASSERT_EQ(warned.warnings.size(), 1U);
  EXPECT_NE(warned.warnings[0].find("CONTEXT-LIVE"), std::string::npos) << warned.warnings[0];
}

TEST(DeviceTexts, NeedRoomForTheirEnd) {
  Emulated driver;
  std::vector<char> name(64, '#');
  for (const int wrong : {-1, 0}) {
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceGetName(name.data(), wrong, 0));
    EXPECT_NE(driver->explanation().find("TEXT-ROOM"), std::string::npos) << driver->explanation();
  }
  EXPECT_EQ(name[0], '#');
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetName(name.data(), 1, 0));
  EXPECT_EQ(name[0], '\0');
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceGetPCIBusId(name.data(), 12, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetPCIBusId(name.data(), 13, 0));
  Warned warned;
  Emulated faithful(warned.faithful());
  EXPECT_ANSWER(SUCCESS, *faithful, cuDeviceGetName(name.data(), -1, 0));
  EXPECT_EQ(std::string(name.data()), faithful->machine().configuration().profile.device_name);
  EXPECT_EQ(warned.warnings.size(), 1U);
}

// A kernel that touches no memory it may touch breaks the device for the process.
void break_device(Emulated& driver, int device) {
  driver.use(device);
  const CUfunction fill = driver.function("cuvmm_fill");
  EXPECT_EQ(driver.launch(fill, nullptr, CUdeviceptr{64}, std::uint64_t{8}, std::uint64_t{0}), CUDA_SUCCESS);
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuCtxSynchronize());
}

TEST(StickyErrors, StayWithTheDevice) {
  Emulated driver(strict(2));
  break_device(driver, 0);
  CUcontext context = nullptr;
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuCtxCreate(&context, 0, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&context, 0, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxReset(0));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuDevicePrimaryCtxRetain(&context, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRetain(&context, 1));
}

TEST(StickyErrors, LeaveQuestionsAnswered) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped();
  break_device(driver, 0);
  CUdevice device = 9;
  unsigned flags = 0, type = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetDevice(&device));
  EXPECT_EQ(device, 0);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxGetFlags(&flags));
  EXPECT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range));
}

TEST(StickyErrors, AnswerEveryCallThatNeedsTheContextAndNoOther) {
  Emulated driver(strict(2));
  const CUdeviceptr range = driver.mapped();
  CUstream stream = nullptr;
  CUevent event = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuEventCreate(&event, 0));
  const CUfunction fill = driver.function("cuvmm_fill");
  EXPECT_EQ(driver.launch(fill, stream, range + chunk, std::uint64_t{8}, std::uint64_t{0}), CUDA_SUCCESS);
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuStreamSynchronize(stream));
  EXPECT_NE(driver->explanation().find("cuvmm_fill"), std::string::npos) << driver->explanation();

  CUdeviceptr memory = 0;
  void* host = nullptr;
  unsigned char byte = 0;
  CUstream another = nullptr;
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuCtxSynchronize());
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuMemAlloc(&memory, 1));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuMemHostAlloc(&host, 1, 0));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuMemcpyDtoH(&byte, range, 1));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuMemsetD8(range, 0, 1));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuStreamCreate(&another, 0));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuStreamQuery(stream));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuEventRecord(event, stream));
  EXPECT_EQ(driver.launch(fill, stream, range, std::uint64_t{8}, std::uint64_t{0}), CUDA_ERROR_ILLEGAL_ADDRESS);
  // Virtual memory needs no context: everything can be given back.
  const auto handle = driver.create(on_device(0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
  driver.unmap_and_free(range);
  int count = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetCount(&count));
  // Another device's context is healthy.
  driver.use(1);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 1));
}

}  // namespace
}  // namespace cuvmm::emulator::test
