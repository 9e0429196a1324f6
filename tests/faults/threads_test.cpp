// Every entry point called by many threads at once, on objects of their own and in contexts that they share: worth most
// under the sanitizers, which see what no answer tells.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "conformance/cases/drivers.hpp"
#include "conformance/cases/entry_point_calls.hpp"
#include "emulator/api/emulated_driver.hpp"

namespace cuvmm::test {
namespace {

using namespace abi;
using driver::EntryPoint;

constexpr int thread_count = 6;

int rounds() {
  return std::getenv("CUVMM_TEST_LONG") != nullptr ? 200 : 5;
}

// What ends the contexts of all threads.
bool ends_contexts(EntryPoint entry) {
  return entry == EntryPoint::cuDevicePrimaryCtxReset || entry == EntryPoint::cuDevicePrimaryCtxRelease;
}

// Work in a stream that was destroyed cannot be waited for any more.
bool ends_the_stream(EntryPoint entry) {
  return entry == EntryPoint::cuStreamDestroy;
}

// Copies of page-locked memory are asynchronous, and other calls write into that page. What is registered by all
// threads at once is one of the objects.
bool registers_the_page(EntryPoint entry) {
  return entry == EntryPoint::cuMemHostRegister;
}

// Gives back what must not outlive the thread: what is registered is the thread's own memory, as is what is copied to.
void leave(conformance::Environment& cuda, const conformance::Objects& objects) {
  (void)cuda->cuStreamDestroy(objects.capturing);
  (void)cuda->cuCtxSynchronize();
  (void)cuda->cuMemHostUnregister(objects.registered);
  (void)cuda->cuMemUnmap(objects.reservation, 2 * conformance::granule);
  ::close(objects.descriptor);
}

// Makes all calls in an order of its own. What they answer depends on the others: captures of one context see what
// other threads do in it. How many calls there were.
int call_all(const std::shared_ptr<driver::Interface>& driver, unsigned seed, bool with_ends) {
  conformance::Environment cuda([&] { return driver; });
  if (cuda.begin(conformance::Start::context)) return 0;
  std::vector<conformance::EntryPointCall> calls = conformance::entry_point_calls();
  std::shuffle(calls.begin(), calls.end(), std::mt19937(seed));
  std::stable_partition(calls.begin(), calls.end(),
                        [](const auto& each) { return !ends_the_stream(each.entry_point); });
  conformance::Objects objects = conformance::make_objects(cuda);
  int made = 0;
  for (const conformance::EntryPointCall& each : calls) {
    if (registers_the_page(each.entry_point) || (ends_contexts(each.entry_point) && !with_ends)) continue;
    (void)each.call(cuda.driver(), objects);
    ++made;
    // One thread's work in two streams is on the same memory.
    (void)cuda->cuStreamSynchronize(objects.stream);
    (void)cuda->cuStreamSynchronize(nullptr);
  }
  leave(cuda, objects);
  return made;
}

// The calls of all threads.
int call_all_in_threads(const std::shared_ptr<driver::Interface>& driver, int round, bool with_ends) {
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  threads.reserve(thread_count);
  for (int index = 0; index < thread_count; ++index)
    threads.emplace_back(
        [&, seed = static_cast<unsigned>(round * thread_count + index)] { made += call_all(driver, seed, with_ends); });
  for (std::thread& thread : threads) thread.join();
  return made;
}

// Strict, so that it refuses to unmap what is in use, after which nothing would work.
std::shared_ptr<driver::Interface> strict_driver() {
  ::setenv("CUVMM_EMULATOR", "mode=strict", 1);
  return conformance::emulated_driver(2)();
}

void expect_works(driver::Interface& driver, int device) {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuCtxSetCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemAlloc(&memory, 4096), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemsetD8(memory, 1, 4096), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST(EntryPointThreads, CallAllAtOnce) {
  const auto driver = strict_driver();
  for (int round = 0; round < rounds(); ++round)
    EXPECT_GT(call_all_in_threads(driver, round, false), thread_count * 100);
  expect_works(*driver, 0);
}

// Work whose memory goes with a context that another thread ends faults, and the device with it; the other one stays.
TEST(EntryPointThreads, CallAllAtOnceWhileContextsEnd) {
  for (int round = 0; round < rounds(); ++round) {
    const auto driver = strict_driver();
    EXPECT_GT(call_all_in_threads(driver, round, true), 100);
    expect_works(*driver, 1);
  }
}

}  // namespace
}  // namespace cuvmm::test
