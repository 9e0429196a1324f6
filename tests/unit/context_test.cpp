#include "cuvmm/context.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

#include "recording_handler.hpp"
#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;

class CurrentContextTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_->on_cuDevicePrimaryCtxRetain = [this](CUcontext* context, CUdevice device) {
      EXPECT_EQ(device, 1);
      *context = primary_;
      return CUDA_SUCCESS;
    };
    fake_->on_cuCtxPopCurrent = [this](CUcontext* context) {
      *context = popped_;
      return CUDA_SUCCESS;
    };
  }

  int storage_ = 0;
  CUcontext primary_ = reinterpret_cast<CUcontext>(&storage_);
  CUcontext popped_ = primary_;
  test::RecordingHandler clean_up_;
  std::shared_ptr<test::FakeDriver> fake_ = test::scripted_driver();
  Device device_ = Driver::wrap(fake_).device(DeviceOrdinal{1});
};

TEST_F(CurrentContextTest, RetainsPushesPopsAndReleases) {
  fake_->calls.clear();
  {
    const CurrentContext context(device_);
    EXPECT_EQ(context.handle(), primary_);
    EXPECT_EQ(context.device().ordinal(), DeviceOrdinal{1});
    context.synchronize();
  }
  EXPECT_EQ(fake_->calls, (std::vector<EntryPoint>{EntryPoint::cuDevicePrimaryCtxRetain, EntryPoint::cuCtxPushCurrent,
                                                   EntryPoint::cuCtxSynchronize, EntryPoint::cuCtxPopCurrent,
                                                   EntryPoint::cuDevicePrimaryCtxRelease}));
  EXPECT_TRUE(clean_up_.failures.empty());
}

TEST_F(CurrentContextTest, ReleasesIfItCannotBePushed) {
  fake_->answer(EntryPoint::cuCtxPushCurrent, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_THROW(CurrentContext{device_}, InvalidUse);
  EXPECT_EQ(fake_->count(EntryPoint::cuDevicePrimaryCtxRelease), 1u);
  EXPECT_EQ(fake_->count(EntryPoint::cuCtxPopCurrent), 0u);
}

TEST_F(CurrentContextTest, ReleasesNothingIfItCannotBeRetained) {
  fake_->answer(EntryPoint::cuDevicePrimaryCtxRetain, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THROW(CurrentContext{device_}, OutOfDeviceMemory);
  EXPECT_EQ(fake_->count(EntryPoint::cuDevicePrimaryCtxRelease), 0u);
}

TEST_F(CurrentContextTest, ReportsThatAnotherContextWasCurrent) {
  popped_ = nullptr;
  { const CurrentContext context(device_); }
  ASSERT_EQ(clean_up_.failures.size(), 1u);
  EXPECT_EQ(clean_up_.failures[0].kind, ErrorKind::invalid_use);
}

TEST_F(CurrentContextTest, ReportsDestructionByAnotherThreadAndPopsNothingThere) {
  auto context = std::make_unique<CurrentContext>(device_);
  std::thread([&] { context.reset(); }).join();
  ASSERT_EQ(clean_up_.failures.size(), 1u);
  EXPECT_NE(clean_up_.failures[0].rule.find("thread"), std::string::npos);
  EXPECT_EQ(fake_->count(EntryPoint::cuCtxPopCurrent), 0u);
  EXPECT_EQ(fake_->count(EntryPoint::cuDevicePrimaryCtxRelease), 1u);
}

TEST_F(CurrentContextTest, AStickyErrorIsALostDevice) {
  const CurrentContext context(device_);
  fake_->answer(EntryPoint::cuCtxSynchronize, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THROW(context.synchronize(), DeviceLost);
}

}  // namespace
}  // namespace cuvmm
