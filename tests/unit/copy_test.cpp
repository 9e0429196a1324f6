#include "cuvmm/copy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;

// A device that keeps the content of one mapping in a vector.
class CopyTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_->on_cuMemcpyHtoD = [this](CUdeviceptr destination, const void* source, size_t bytes) {
      std::memcpy(&content_.at(destination - mapping_.address().value), source, bytes);
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemcpyDtoH = [this](void* destination, CUdeviceptr source, size_t bytes) {
      std::memcpy(destination, &content_.at(source - mapping_.address().value), bytes);
      return CUDA_SUCCESS;
    };
  }

  std::shared_ptr<test::FakeDriver> fake_ = test::scripted_driver();
  Driver driver_ = Driver::wrap(fake_);
  AddressReservation range_ = AddressReservation::create(driver_, 64_KiB);
  PhysicalMemory memory_ = PhysicalMemory::create(driver_, {}, 64_KiB);
  Mapping mapping_ = Mapping::create(range_, 0, memory_);
  std::vector<char> content_ = std::vector<char>(64_KiB);
};

TEST_F(CopyTest, MovesElementsThereAndBack) {
  const std::vector<int> sent{1, 2, 3};
  copy_to_device(mapping_, 16, sent);
  std::vector<int> received(3);
  copy_from_device(received, mapping_, 16);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(content_[15], 0);
  EXPECT_EQ(content_[28], 0);
}

TEST_F(CopyTest, MovesTexts) {
  copy_to_device(mapping_, 0, std::string("device"));
  EXPECT_STREQ(content_.data(), "device");
}

TEST_F(CopyTest, WaitsUntilTheBytesHaveArrived) {
  copy_to_device(mapping_, 0, std::string("x"));
  EXPECT_EQ(fake_->calls.back(), EntryPoint::cuStreamSynchronize);
}

TEST_F(CopyTest, RefusesBytesBeyondTheMapping) {
  std::vector<char> bytes(2);
  EXPECT_THROW(copy_to_device(mapping_, 64_KiB - 1, bytes), InvalidUse);
  EXPECT_THROW(copy_from_device(bytes, mapping_, 64_KiB - 1), InvalidUse);
  EXPECT_THROW(copy_from_device(bytes, mapping_, SIZE_MAX), InvalidUse);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemcpyHtoD) + fake_->count(EntryPoint::cuMemcpyDtoH), 0u);
  EXPECT_NO_THROW(copy_to_device(mapping_, 64_KiB - 2, bytes));
  EXPECT_NO_THROW(copy_from_device(bytes, mapping_, 64_KiB - 2));
}

TEST_F(CopyTest, WhatWasUnmappedIsSaidToBe) {
  EXPECT_NO_THROW(copy_to_device(mapping_, 0, std::string("x")));
  mapping_.unmap();
  try {
    copy_to_device(mapping_, 0, std::string("x"));
    FAIL() << "did not throw";
  } catch (const InvalidUse& error) {
    EXPECT_NE(error.rule().find("Nothing is mapped"), std::string::npos) << error.what();
    EXPECT_EQ(error.way_out(), "Map memory first");
  }
}

TEST_F(CopyTest, NothingToCopyIsNoCall) {
  fake_->calls.clear();
  copy_bytes_to_device(driver_, DeviceAddress{}, {});
  copy_bytes_from_device(driver_, {}, DeviceAddress{});
  EXPECT_TRUE(fake_->calls.empty());
}

// Which reason it was is asked of the driver: access_refusal_test.cpp.
TEST_F(CopyTest, MissingRightsAreInvalidUseWithTheWayOut) {
  fake_->answer(EntryPoint::cuMemcpyHtoD, CUDA_ERROR_INVALID_VALUE);
  try {
    copy_to_device(mapping_, 0, std::string("x"));
    FAIL() << "did not throw";
  } catch (const InvalidUse& error) {
    EXPECT_EQ(error.failure().rule_ids, "ACCESS-NEEDED");
    EXPECT_FALSE(error.way_out().empty());
  }
}

}  // namespace
}  // namespace cuvmm
