#include "cuvmm/address_reservation.hpp"

#include <gtest/gtest.h>

#include "cuvmm/mapping.hpp"
#include "recording_handler.hpp"
#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;

class AddressReservationTest : public testing::Test {
 protected:
  test::RecordingHandler clean_up_;
  std::shared_ptr<test::FakeDriver> fake_ = test::scripted_driver();
  Driver driver_ = Driver::wrap(fake_);
};

TEST_F(AddressReservationTest, IsReservedWithOneCallAndFreedWithOne) {
  std::size_t seen_alignment = 0;
  CUdeviceptr seen_hint = 0;
  fake_->on_cuMemAddressReserve = [&](CUdeviceptr* pointer, size_t, size_t alignment, CUdeviceptr hint,
                                      unsigned long long) {
    seen_alignment = alignment;
    seen_hint = hint;
    *pointer = 0x10000000;
    return CUDA_SUCCESS;
  };
  std::size_t freed = 0;
  fake_->on_cuMemAddressFree = [&](CUdeviceptr pointer, size_t size) {
    EXPECT_EQ(pointer, 0x10000000u);
    freed = size;
    return CUDA_SUCCESS;
  };
  {
    const auto range = AddressReservation::create(driver_, 8_MiB, 4_MiB, DeviceAddress{0x40000000});
    EXPECT_EQ(range.address(), DeviceAddress{0x10000000});
    EXPECT_EQ(range.size(), 8_MiB);
    EXPECT_EQ(range.driver(), driver_);
    EXPECT_EQ(seen_alignment, 4_MiB);
    EXPECT_EQ(seen_hint, 0x40000000u);
  }
  EXPECT_EQ(freed, 8_MiB);
  EXPECT_EQ(fake_->calls.size(), 2u);
}

TEST_F(AddressReservationTest, RunningOutIsOfAddressesAndNotOfMemory) {
  fake_->answer(EntryPoint::cuMemAddressReserve, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THROW(static_cast<void>(AddressReservation::create(driver_, 8_MiB)), OutOfAddressSpace);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemAddressFree), 0u);
}

TEST_F(AddressReservationTest, IsNotFreedWhileAMappingIsLeft) {
  auto range = AddressReservation::create(driver_, 8_MiB);
  const auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  auto mapping = Mapping::create(range, 0, memory);
  EXPECT_THROW(range.free(), InvalidUse);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemAddressFree), 0u);
  mapping.unmap();
  range.free();
  EXPECT_EQ(fake_->count(EntryPoint::cuMemAddressFree), 1u);
}

TEST_F(AddressReservationTest, AFailedFreeIsReported) {
  fake_->answer(EntryPoint::cuMemAddressFree, CUDA_ERROR_INVALID_VALUE);
  { const auto range = AddressReservation::create(driver_, 8_MiB); }
  ASSERT_EQ(clean_up_.failures.size(), 1u);
  EXPECT_EQ(clean_up_.failures[0].call, "cuMemAddressFree");
}

}  // namespace
}  // namespace cuvmm
