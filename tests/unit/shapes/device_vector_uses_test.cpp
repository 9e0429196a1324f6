// Nothing is unmapped under running work, at any address that the buffer has or had: a strict machine would refuse it.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "cuvmm/device_vector.hpp"
#include "retirement.hpp"
#include "shapes/small_buffer.hpp"

namespace cuvmm {
namespace {

using driver::call;
using driver::EntryPoint;
using test::small;
using test::take_addresses_behind;

class DeviceVectorUses : public testing::Test {
 protected:
  void hold_back_work_at(DeviceAddress address) const {
    machine_.wait(stream_, word_);
    call<EntryPoint::cuMemsetD8Async>(machine_.api(), address.value, static_cast<unsigned char>(7), 4096U, stream_);
  }
  // Copies from and to other memory of the host may wait for the stream.
  [[nodiscard]] std::span<int> page_locked() const {
    void* pointer = nullptr;
    call<EntryPoint::cuMemHostAlloc>(machine_.api(), &pointer, std::size_t{4096}, 0U);
    return {static_cast<int*>(pointer), 1024};
  }
  void TearDown() override {
    for (const Failure& each : clean_up_.take()) ADD_FAILURE() << each.message();
  }

  test::SafeRecordingHandler clean_up_;
  test::RetirementMachine machine_;
  abi::CUstream stream_ = machine_.stream();
  std::uint32_t* word_ = machine_.word();
};

TEST_F(DeviceVectorUses, C01_ShrinkingWaitsForTheStreamsThatWereTold) {
  auto bytes = DeviceBuffer::create(machine_.driver(), small());
  bytes.resize(4_MiB);
  bytes.used_on(stream_);
  hold_back_work_at(bytes.address());
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    test::RetirementMachine::open(word_);
  });
  bytes.clear();
  bytes.shrink_to_fit();
  opener.join();
  EXPECT_EQ(bytes.capacity(), 0u);
}

TEST_F(DeviceVectorUses, AWaitThatLastsTooLongChangesNothing) {
  MappedRangeOptions options = small();
  options.device_wait = std::chrono::milliseconds(5);
  auto bytes = DeviceBuffer::create(machine_.driver(), options);
  bytes.resize(8_MiB);
  const auto taken = take_addresses_behind(bytes);
  bytes.used_on(stream_);
  const DeviceAddress before = bytes.address();
  hold_back_work_at(before);
  bytes.resize(9_MiB);  // moves, and waits for nothing
  EXPECT_NE(bytes.address(), before);
  bytes.clear();
  for (const auto& refused : {bytes.try_release_former(), bytes.try_shrink_to_fit()}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.failure().kind, ErrorKind::timed_out);
  }
  EXPECT_THROW(bytes.revoke(machine_.device().location()), TimedOut);
  EXPECT_THROW(bytes.close(), TimedOut);
  EXPECT_EQ(bytes.former_addresses(), std::vector{before});
  EXPECT_GE(bytes.capacity(), 9_MiB);
  test::RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
  bytes.release_former();
  bytes.close();
}

TEST_F(DeviceVectorUses, WhatWasToldBeforeAMoveHoldsAfterIt) {
  auto bytes = DeviceBuffer::create(machine_.driver(), small());
  bytes.resize(8_MiB);
  bytes.used_on(stream_);
  const auto taken = take_addresses_behind(bytes);
  bytes.resize(9_MiB);
  bytes.release_former();
  hold_back_work_at(bytes.address());
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    test::RetirementMachine::open(word_);
  });
  bytes.close();
  opener.join();
}

TEST_F(DeviceVectorUses, C02_AQueueReleasesTheFormerPointerBehindItsWork) {
  MappedRangeOptions options = small();
  options.retire_queue = RetireQueue::create(machine_.driver());
  auto bytes = DeviceBuffer::create(machine_.driver(), options);
  bytes.resize(8_MiB);
  const auto taken = take_addresses_behind(bytes);
  bytes.used_on(stream_);
  const DeviceAddress before = bytes.address();
  hold_back_work_at(before);
  bytes.resize(9_MiB);
  EXPECT_NE(bytes.address(), before);
  EXPECT_TRUE(bytes.former_addresses().empty());
  EXPECT_EQ(options.retire_queue->pending(), 1u);
  options.retire_queue->poll();
  EXPECT_EQ(options.retire_queue->pending(), 1u) << "the kernel may still write through the former pointer";
  test::RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
  options.retire_queue->poll();
  EXPECT_EQ(options.retire_queue->pending(), 0u);
  std::byte written{};
  bytes.read(100, std::span(&written, 1));
  EXPECT_EQ(written, std::byte{7}) << "what it wrote is in the memory";
}

TEST_F(DeviceVectorUses, ItAppendsItselfFromWhereItHasMovedTo) {
  MappedRangeOptions options = small();
  options.retire_queue = RetireQueue::create(machine_.driver());
  auto bytes = DeviceBuffer::create(machine_.driver(), options);
  bytes.append(std::vector<std::byte>(8_MiB, std::byte{5}));
  const auto taken = take_addresses_behind(bytes);
  const DeviceAddress before = bytes.address();
  bytes.append_from_device(before + 100, 50);  // where nothing is mapped by the time that it is copied
  EXPECT_NE(bytes.address(), before);
  std::vector<std::byte> last(50);
  bytes.read(8_MiB, last);
  EXPECT_EQ(last, std::vector<std::byte>(50, std::byte{5}));
}

TEST_F(DeviceVectorUses, StreamOrderedCopiesAreToldOfThemselves) {
  MappedRangeOptions options = small();
  options.device_wait = std::chrono::milliseconds(5);
  auto numbers = DeviceVector<int>::create(machine_.driver(), options);
  const std::span<int> host = page_locked();
  std::iota(host.begin(), host.end(), 1);
  machine_.wait(stream_, word_);
  EXPECT_EQ(numbers.append(host.first(3), stream_), std::nullopt);
  numbers.append_from_device(numbers.data(), 3, stream_);
  numbers.write(5, host.subspan(8, 1), stream_);
  numbers.read(0, host.subspan(10, 6), stream_);
  EXPECT_EQ(numbers.size(), 6u);
  numbers.clear();
  EXPECT_FALSE(numbers.buffer().try_shrink_to_fit()) << "nobody told of the stream, and it is known";
  test::RetirementMachine::open(word_);
  call<EntryPoint::cuStreamSynchronize>(machine_.api(), stream_);
  EXPECT_EQ(std::vector<int>(host.begin() + 10, host.begin() + 16), (std::vector<int>{1, 2, 3, 1, 2, 9}));
  EXPECT_TRUE(numbers.buffer().try_shrink_to_fit());
}

TEST_F(DeviceVectorUses, ACapturedCopyHoldsTheMemoryForItsGraph) {
  MappedRangeOptions options = small();
  options.device_wait = std::chrono::milliseconds(5);
  auto numbers = DeviceVector<int>::create(machine_.driver(), options);
  numbers.reserve(100);
  const std::span<int> host = page_locked().first(3);
  machine_.begin_capture(stream_);
  const auto capture = numbers.append(host, stream_);
  ASSERT_TRUE(capture);
  const abi::CUgraph graph = machine_.end_capture(stream_);
  numbers.clear();
  EXPECT_FALSE(numbers.buffer().try_shrink_to_fit());
  call<EntryPoint::cuGraphDestroy>(machine_.api(), graph);
  numbers.buffer().uses().graph_gone(*capture);
  EXPECT_TRUE(numbers.buffer().try_shrink_to_fit());
}

}  // namespace
}  // namespace cuvmm
