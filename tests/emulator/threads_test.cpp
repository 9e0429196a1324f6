// Many threads in the driver at once: worth most under the thread sanitizer.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

int rounds() {
  return std::getenv("CUVMM_TEST_LONG") != nullptr ? 400 : 20;
}

template <class Work>
void in_threads(int count, Work work) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  for (int index = 0; index < count; ++index) threads.emplace_back(work, index);
  for (std::thread& thread : threads) thread.join();
}

// Create, map, grant, fill by memset and kernel, copy, read back, unmap, release: each thread on memory of its own.
void work_with_memory(Emulated& driver, int index) {
  const int device = index % 2;
  driver.use(device);
  CUstream stream = nullptr;
  ASSERT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUfunction fill = driver.function("cuvmm_fill");
  for (int round = 0; round < rounds(); ++round) {
    const CUdeviceptr range = driver.reserve(2 * chunk);
    for (const CUdeviceptr offset : {CUdeviceptr{0}, CUdeviceptr{chunk}}) {
      const auto handle = driver.create(on_device((index + round) % 2));
      driver.map(range + offset, handle);
      ASSERT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
    }
    ASSERT_EQ(driver.grant(range, 2 * chunk, grant_device(device)), CUDA_SUCCESS);
    const auto value = static_cast<unsigned char>(index * 16 + round);
    ASSERT_ANSWER(SUCCESS, *driver, cuMemsetD8Async(range + chunk - 64, value, 128, stream));
    ASSERT_EQ(driver.launch(fill, stream, range, std::uint64_t{64}, ~std::uint64_t{0}), CUDA_SUCCESS);
    ASSERT_ANSWER(SUCCESS, *driver, cuMemcpyDtoDAsync(range + 4096, range + chunk - 64, 128, stream));
    std::vector<unsigned char> seen(128);
    ASSERT_ANSWER(SUCCESS, *driver, cuMemcpyDtoHAsync(seen.data(), range + 4096, 128, stream));
    ASSERT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(stream));
    ASSERT_EQ(seen, std::vector<unsigned char>(128, value));
    driver.unmap_and_free(range, 2 * chunk);
  }
  ASSERT_ANSWER(SUCCESS, *driver, cuStreamDestroy(stream));
}

TEST(Threads, WorkWithMemoryOfTheirOwn) {
  Emulated driver(strict(2));
  const auto nothing = driver.live();
  in_threads(8, [&](int index) { work_with_memory(driver, index); });
  EXPECT_EQ(driver.live(), nothing);
}

TEST(Threads, ShareExportRetainAndAskAtOnce) {
  Emulated driver(strict(2));
  const auto handle = driver.create(on_device(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const CUdeviceptr range = driver.reserve();
  driver.map(range, handle);
  const auto before = driver.live();
  in_threads(6, [&](int index) {
    driver.use(index % 2);
    for (int round = 0; round < rounds(); ++round) {
      int descriptor = -1;
      CUmemGenericAllocationHandle other = 0;
      ASSERT_ANSWER(SUCCESS, *driver,
                    cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
      ASSERT_ANSWER(
          SUCCESS, *driver,
          cuMemImportFromShareableHandle(&other, reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
      ::close(descriptor);
      ASSERT_ANSWER(SUCCESS, *driver, cuMemRelease(other));
      ASSERT_ANSWER(SUCCESS, *driver, cuMemRetainAllocationHandle(&other, reinterpret_cast<void*>(range)));
      ASSERT_ANSWER(SUCCESS, *driver, cuMemRelease(other));
      ASSERT_EQ(driver.grant(range, chunk, grant_device(index % 2)), CUDA_SUCCESS);
      unsigned type = 0;
      ASSERT_ANSWER(SUCCESS, *driver, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range));
      CUdeviceptr memory = 0;
      ASSERT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 1000 + static_cast<std::size_t>(index)));
      ASSERT_ANSWER(SUCCESS, *driver, cuMemFree(memory));
    }
  });
  EXPECT_EQ(driver.live(), before);
}

// Contexts begin and end while others work in them: whoever is late is told so, and what belonged to a context is gone
// with it.
TEST(Threads, ReleaseResetAndRetainAPrimaryContextAtOnce) {
  // Faithful: a context that another thread has just reset can be made current.
  Configuration configuration = strict(2);
  configuration.mode = Mode::faithful;
  configuration.on_warning = [](const std::string&) {};
  Emulated driver(configuration);
  const CUdeviceptr range = driver.mapped(chunk, on_device(1), grant_device(1));
  in_threads(6, [&](int index) {
    for (int round = 0; round < rounds(); ++round) {
      CUcontext context = nullptr;
      ASSERT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRetain(&context, 1));
      ASSERT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(context));
      CUdeviceptr memory = 0;
      const CUresult allocated = driver->cuMemAlloc(&memory, 100);
      ASSERT_TRUE(allocated == CUDA_SUCCESS || allocated == CUDA_ERROR_CONTEXT_IS_DESTROYED) << allocated;
      CUcontext zero = nullptr;
      ASSERT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRetain(&zero, 0));
      const CUresult enabled = driver->cuCtxEnablePeerAccess(zero, 0);
      ASSERT_TRUE(enabled == CUDA_SUCCESS || enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ||
                  enabled == CUDA_ERROR_CONTEXT_IS_DESTROYED)
          << enabled;
      ASSERT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRelease(0));
      // Not on that memory: it may go at any moment, and the fault would stay with the device. Nor twice on the same
      // bytes: what a context was running when it ended may overlap with what the next one runs.
      const auto turn =
          static_cast<CUdeviceptr>(index) * static_cast<CUdeviceptr>(rounds()) + static_cast<CUdeviceptr>(round);
      const CUresult set = driver->cuMemsetD8(range + 128 * turn, 1, 100);
      ASSERT_TRUE(set == CUDA_SUCCESS || set == CUDA_ERROR_CONTEXT_IS_DESTROYED) << set;
      if ((index + round) % 3 == 0) ASSERT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxReset(1));
      ASSERT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxRelease(1));
    }
  });
  unsigned flags = 0;
  int active = 9;
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(driver.live().heap_allocations, 0U);
  // No peer access is left over.
  driver.use(0);
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 64));
  driver.use(1);
  EXPECT_EQ(driver.launch(driver.function("cuvmm_fill"), nullptr, memory, std::uint64_t{8}, std::uint64_t{0}),
            CUDA_SUCCESS);
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuCtxSynchronize());
}

TEST(Threads, MayDestroyAContextOnce) {
  Emulated driver;
  for (int round = 0; round < rounds(); ++round) {
    CUcontext context = nullptr;
    ASSERT_ANSWER(SUCCESS, *driver, cuCtxCreate(&context, 0, 0));
    std::atomic<int> destroyed{0};
    in_threads(4, [&](int) {
      if (driver->cuCtxDestroy(context) == CUDA_SUCCESS) ++destroyed;
    });
    EXPECT_EQ(destroyed, 1);
    ASSERT_ANSWER(SUCCESS, *driver, cuCtxPopCurrent(nullptr));
  }
}

}  // namespace
}  // namespace cuvmm::emulator::test
