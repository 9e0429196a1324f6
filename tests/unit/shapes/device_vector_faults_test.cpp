// What a growing buffer is like after a driver call has failed: as it was.
#include <gtest/gtest.h>

#include <atomic>

#include "../../sanitizers.hpp"
#include "cuvmm/device_vector.hpp"
#include "driver/call.hpp"
#include "range/range_machine.hpp"
#include "recording_handler.hpp"

namespace cuvmm {
namespace {

using test::Alive;
using test::EntryPoint;

class DeviceVectorFaults : public testing::Test {
 protected:
  // Full to its last address, and those behind it are taken.
  DeviceBuffer full_buffer() {
    MappedRangeOptions options;
    options.capacity = 8_MiB;
    options.chunks = ChunkPolicy::fixed(2_MiB);
    options.retire_queue = queue_;
    auto buffer = DeviceBuffer::create(machine_.driver(), options);
    buffer.append(content_);
    taken_ = AddressReservation::create(machine_.driver(), 2_MiB, 0, buffer.address() + 8_MiB);
    EXPECT_EQ(taken_->address(), buffer.address() + 8_MiB);
    return buffer;
  }
  std::string state(const DeviceBuffer& buffer) const {
    std::vector<std::byte> content(buffer.size());
    buffer.read(0, content);
    return std::to_string(buffer.address().value) + ": " + std::to_string(buffer.size()) + " of " +
           std::to_string(buffer.capacity()) + ", generation " + std::to_string(buffer.generation()) + ", " +
           std::to_string(buffer.former_addresses().size()) + " former" +
           (content == content_ ? "" : ", other content");
  }

  test::RecordingHandler clean_up_;
  test::RangeMachine machine_{test::strict_machine(1)};
  CurrentContext context_{machine_.driver().device(DeviceOrdinal(0))};
  std::shared_ptr<RetireQueue> queue_;
  std::optional<AddressReservation> taken_;
  const std::vector<std::byte> content_ = test::pattern(8_MiB, 1);
};

TEST_F(DeviceVectorFaults, C34_AMoveThatFailsAtAnyCallLeavesEverythingAsItWas) {
  for (const bool with_queue : {false, true}) {
    queue_ = with_queue ? RetireQueue::create(machine_.driver()) : nullptr;
    auto buffer = full_buffer();
    const std::string before = state(buffer);
    const Alive alive = machine_.alive();
    struct Point {
      EntryPoint entry;
      std::uint64_t calls;
    };
    for (const Point& point : {Point{EntryPoint::cuMemAddressReserve, 3}, Point{EntryPoint::cuMemCreate, 2},
                               Point{EntryPoint::cuMemMap, 6}, Point{EntryPoint::cuMemSetAccess, 2}}) {
      for (std::uint64_t call = 1; call <= point.calls; ++call) {
        SCOPED_TRACE(std::string(driver::name(point.entry)) + " " + std::to_string(call));
        machine_.fail(point.entry, call, abi::CUDA_ERROR_UNKNOWN);
        const auto grown = buffer.try_reserve(12_MiB);
        machine_.faults().clear();
        ASSERT_FALSE(grown);
        // Where addresses are asked for behind the buffer's, its range answers for the driver.
        const bool behind = point.entry == EntryPoint::cuMemAddressReserve && call < 3;
        EXPECT_EQ(grown.failure().call, behind ? "MappedRange::append" : driver::name(point.entry));
        EXPECT_EQ(state(buffer), before);
        EXPECT_EQ(machine_.alive(), alive);
      }
    }
    EXPECT_TRUE(clean_up_.failures.empty());
    buffer.reserve(12_MiB);
    EXPECT_EQ(buffer.capacity(), 12_MiB) << "a retry works";
    EXPECT_EQ(buffer.former_addresses().size(), with_queue ? 0u : 1u);
    buffer.close();
    taken_.reset();
    EXPECT_EQ(machine_.alive(), Alive{});
  }
}

TEST_F(DeviceVectorFaults, ALackOfMemoryAfterTheMoveUndoesTheMove) {
  auto buffer = full_buffer();
  const std::string before = state(buffer);
  const auto refused = buffer.try_reserve(test::thread_sanitizer ? 256_GiB : 1_TiB);  // addresses for which there are
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::out_of_device_memory);
  EXPECT_EQ(state(buffer), before);
}

TEST_F(DeviceVectorFaults, ACopyThatFailsAddsNoContent) {
  auto buffer = full_buffer();
  machine_.fail(EntryPoint::cuMemcpyHtoD, 1, abi::CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(buffer.append(content_), Error);
  EXPECT_EQ(buffer.size(), 8_MiB);
  EXPECT_EQ(buffer.capacity(), 16_MiB) << "the memory for it is there";
  machine_.faults().clear();
  machine_.calls();
  buffer.append(content_);
  EXPECT_EQ(machine_.calls(), "cuMemcpyHtoD 1, cuStreamSynchronize 1");
  EXPECT_EQ(buffer.size(), 16_MiB);
}

TEST_F(DeviceVectorFaults, ACopyThatCouldNotBeWaitedForIsWaitedForLater) {
  emulator::Configuration configuration = test::strict_machine();
  configuration.scheduler = emulator::Scheduler::stepped;  // so that the copy runs only when it is waited for
  test::RangeMachine machine(configuration);
  const CurrentContext context(machine.driver().device(DeviceOrdinal(0)));
  auto buffer = DeviceBuffer::create(machine.driver());
  buffer.append(content_);
  machine.fail(EntryPoint::cuStreamSynchronize, 1, abi::CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(buffer.append_from_device(buffer.address(), 8_MiB), Error);
  buffer.close();
  EXPECT_TRUE(clean_up_.failures.empty()) << "nothing was unmapped under it";
  EXPECT_EQ(machine.alive(), Alive{});
}

TEST_F(DeviceVectorFaults, AMoveThatCannotBeUndoneIsUndoneLater) {
  auto buffer = full_buffer();
  const std::string before = state(buffer);
  machine_.fail(EntryPoint::cuMemSetAccess, 1, abi::CUDA_ERROR_UNKNOWN);
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN, true);
  EXPECT_FALSE(buffer.try_reserve(12_MiB));
  EXPECT_FALSE(clean_up_.failures.empty()) << "it is told of";
  EXPECT_EQ(state(buffer), before);
  EXPECT_EQ(machine_.alive().mappings, 8u) << "4 that could not be unmapped";
  EXPECT_THROW(buffer.release_former(), Error);
  machine_.faults().clear();
  buffer.release_former();
  EXPECT_EQ(machine_.alive().mappings, 4u);
  buffer.close();
  taken_.reset();
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(DeviceVectorFaults, WhereTheQueueHasNoRoomTheFormerPointerStays) {
  queue_ = RetireQueue::create(machine_.driver(), {.max_pending = 1, .full_wait = std::chrono::milliseconds(1)});
  auto buffer = full_buffer();
  abi::CUstream stream = nullptr;
  driver::call<EntryPoint::cuStreamCreate>(machine_.driver().interface(), &stream, 1U);
  void* word = nullptr;
  driver::call<EntryPoint::cuMemHostAlloc>(machine_.driver().interface(), &word, std::size_t{4096}, 0U);
  std::atomic_ref(*static_cast<std::uint32_t*>(word)).store(0);
  driver::call<EntryPoint::cuStreamWaitValue32>(machine_.driver().interface(), stream,
                                                reinterpret_cast<abi::CUdeviceptr>(word), 1U, 0U);
  buffer.used_on(stream);
  queue_->retire_call([] {}, buffer.uses().so_far());  // which takes all the room
  const DeviceAddress before = buffer.address();
  buffer.reserve(12_MiB);
  EXPECT_EQ(buffer.former_addresses(), std::vector{before});
  std::atomic_ref(*static_cast<std::uint32_t*>(word)).store(1);
  driver::call<EntryPoint::cuStreamSynchronize>(machine_.driver().interface(), stream);
  buffer.release_former();
  EXPECT_TRUE(buffer.former_addresses().empty());
  buffer.no_longer_used_on(stream);
  buffer.close();
  driver::call<EntryPoint::cuMemFreeHost>(machine_.driver().interface(), word);
  driver::call<EntryPoint::cuStreamDestroy>(machine_.driver().interface(), stream);
}

// Chunks that cannot be unmapped leave a gap before them, which must never become content.
TEST_F(DeviceVectorFaults, WhatAShrinkCouldNotUnmapIsUnmappedBeforeItGrowsAgain) {
  auto buffer = full_buffer();
  buffer.resize(1_MiB);
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN);  // of the last three chunks together
  machine_.fail(EntryPoint::cuMemUnmap, 4, abi::CUDA_ERROR_UNKNOWN);  // and of the last alone
  EXPECT_FALSE(buffer.try_shrink_to_fit());
  EXPECT_EQ(buffer.size(), 1_MiB);
  EXPECT_EQ(buffer.capacity(), 2_MiB) << "up to the gap";
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN, true);
  EXPECT_FALSE(buffer.try_resize(3_MiB));
  EXPECT_EQ(buffer.size(), 1_MiB);
  machine_.faults().clear();
  buffer.resize(8_MiB);
  EXPECT_EQ(buffer.capacity(), 8_MiB);
  buffer.write(0, content_);
  std::vector<std::byte> read(8_MiB);
  buffer.read(0, read);
  EXPECT_EQ(read, content_);
}

TEST_F(DeviceVectorFaults, AFormerPointerThatCannotBeReleasedIsKept) {
  auto buffer = full_buffer();
  buffer.reserve(12_MiB);
  const auto former = buffer.former_addresses();
  ASSERT_EQ(former.size(), 1u);
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN, true);
  EXPECT_FALSE(buffer.try_release_former());
  EXPECT_THROW(buffer.shrink_to_fit(), Error);
  EXPECT_THROW(buffer.revoke(Location::device(DeviceOrdinal(0))), Error);
  EXPECT_EQ(buffer.former_addresses(), former);
  machine_.faults().clear();
  EXPECT_TRUE(buffer.try_release_former());
  buffer.close();
  taken_.reset();
  EXPECT_EQ(machine_.alive(), Alive{});
}

}  // namespace
}  // namespace cuvmm
