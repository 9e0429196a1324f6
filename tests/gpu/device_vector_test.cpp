// Vectors on a GPU: they grow under a running kernel, and move by mapping the same memory again.
#include "cuvmm/device_vector.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "on_gpu.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::call;
using driver::EntryPoint;

class DeviceVectorOnGpu : public test::OnGpu {
 protected:
  static std::vector<std::uint32_t> numbers(std::size_t count) {
    std::vector<std::uint32_t> values(count);
    std::iota(values.begin(), values.end(), 1u);
    return values;
  }
  static MappedRangeOptions options(std::size_t capacity) {
    MappedRangeOptions made;
    made.capacity = capacity;
    return made;
  }
  std::size_t free_memory() const {
    std::size_t free = 0, total = 0;
    call<EntryPoint::cuMemGetInfo>(api(), &free, &total);
    return free;
  }
};

TEST_F(DeviceVectorOnGpu, GrowsWhileAKernelReadsThePartThatExists) {
  const CUstream spinning = stream(), other = stream();
  auto values = DeviceVector<std::uint32_t>::create(driver_, options(64_GiB));
  values.append(std::vector<std::uint32_t>(1024, 0u));
  const std::uint32_t* const pointer = values.data();
  values.buffer().used_on(spinning);
  spin(values.address(), spinning);
  for (int i = 0; i < 100; ++i) values.resize(values.size() + (std::size_t{2} << 20));
  EXPECT_EQ(api().cuStreamQuery(spinning), CUDA_ERROR_NOT_READY) << "it reads on";
  EXPECT_EQ(values.data(), pointer);
  call<EntryPoint::cuMemsetD32Async>(api(), values.address().value, 1U, std::size_t{1}, other);
  EXPECT_EQ(api().cuStreamSynchronize(spinning), CUDA_SUCCESS);
  call<EntryPoint::cuStreamSynchronize>(api(), other);
}

TEST_F(DeviceVectorOnGpu, C40_MovesWithoutACopyWhileAKernelUsesTheFormerPointer) {
  const CUstream spinning = stream(), other = stream();
  auto values = DeviceVector<std::uint32_t>::create(driver_, options(8_MiB));
  auto expected = numbers(2_MiB);
  expected[0] = 0;
  values.append(expected);
  const auto taken = AddressReservation::create(driver_, 2_MiB, 0, values.address() + 8_MiB);
  ASSERT_EQ(taken.address(), values.address() + 8_MiB);
  const DeviceAddress before = values.address();
  values.buffer().used_on(spinning);
  spin(before, spinning);
  const std::size_t free_before = free_memory();
  values.resize(values.size() + 1);
  ASSERT_NE(values.address(), before);
  EXPECT_GE(free_memory() + 16_MiB, free_before) << "no second time the memory; the policy adds 8 MiB";
  ASSERT_EQ(api().cuStreamQuery(spinning), CUDA_ERROR_NOT_READY);
  // A store through the new pointer ends the kernel that polls through the former one.
  call<EntryPoint::cuMemsetD32Async>(api(), values.address().value, 1U, std::size_t{1}, other);
  EXPECT_EQ(api().cuStreamSynchronize(spinning), CUDA_SUCCESS);
  call<EntryPoint::cuStreamSynchronize>(api(), other);
  expected[0] = 1;
  std::vector<std::uint32_t> read(expected.size());
  values.read(0, read);
  EXPECT_EQ(read, expected);
  copy_bytes_from_device(driver_, std::as_writable_bytes(std::span(read)), before);
  EXPECT_EQ(read, expected);
  values.buffer().release_former();
  EXPECT_NE(api().cuMemsetD32(before.value, 1, 1), CUDA_SUCCESS);
  values.read(0, read);
  EXPECT_EQ(read, expected);
}

TEST_F(DeviceVectorOnGpu, MovesThroughAQueueBehindARunningKernel) {
  const CUstream spinning = stream(), other = stream();
  MappedRangeOptions with_queue = options(8_MiB);
  with_queue.retire_queue = RetireQueue::create(driver_);
  auto values = DeviceVector<std::uint32_t>::create(driver_, with_queue);
  values.append(std::vector<std::uint32_t>(2_MiB, 0u));
  const auto taken = AddressReservation::create(driver_, 2_MiB, 0, values.address() + 8_MiB);
  ASSERT_EQ(taken.address(), values.address() + 8_MiB);
  const DeviceAddress before = values.address();
  values.buffer().used_on(spinning);
  spin(before, spinning);
  values.resize(values.size() + 1);
  ASSERT_NE(values.address(), before);
  with_queue.retire_queue->poll();
  EXPECT_EQ(with_queue.retire_queue->pending(), 1u);
  ASSERT_EQ(api().cuStreamQuery(spinning), CUDA_ERROR_NOT_READY);
  call<EntryPoint::cuMemsetD32Async>(api(), values.address().value, 1U, std::size_t{1}, other);
  EXPECT_EQ(api().cuStreamSynchronize(spinning), CUDA_SUCCESS);
  EXPECT_TRUE(with_queue.retire_queue->drain_for(std::chrono::seconds(10)));
  call<EntryPoint::cuStreamSynchronize>(api(), other);
  EXPECT_EQ(with_queue.retire_queue->pending(), 0u);
}

TEST_F(DeviceVectorOnGpu, C38_MemoryIsBackAfterManyMoves) {
  {
    auto first = DeviceVector<std::byte>::create(driver_, options(64_MiB));  // what the driver keeps, it keeps now
    first.resize(64_MiB);
  }
  const std::size_t before = free_memory();
  for (int round = 0; round < 20; ++round) {
    auto values = DeviceVector<std::byte>::create(driver_, options(4_MiB));
    std::vector<AddressReservation> taken;
    for (std::size_t size = 4_MiB; size <= 64_MiB; size *= 2) {
      values.resize(size);
      taken.push_back(
          AddressReservation::create(driver_, 2_MiB, 0, values.address() + values.buffer().address_capacity()));
    }
  }
  EXPECT_EQ(free_memory(), before);
}

}  // namespace
}  // namespace cuvmm
