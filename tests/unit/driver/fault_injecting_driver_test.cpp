#include "driver/fault_injecting_driver.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "driver/call.hpp"
#include "fake_driver.hpp"

namespace cuvmm::driver {
namespace {

using test::FakeDriver;

class FaultInjectingDriverTest : public testing::Test {
 protected:
  std::shared_ptr<FakeDriver> fake_ = std::make_shared<FakeDriver>();
  FaultInjectingDriver driver_{fake_};
};

TEST_F(FaultInjectingDriverTest, FailsTheNthCallOfAKindOnce) {
  driver_.inject({EntryPoint::cuMemRelease, 2, CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuMemUnmap(1, 1), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuMemRelease(2), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(driver_.cuMemRelease(3), CUDA_SUCCESS);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 2u) << "the failed call is not made";
  EXPECT_EQ(driver_.injected(), 1u);
}

TEST_F(FaultInjectingDriverTest, FailsTheNthCallOfAnyKind) {
  driver_.inject({std::nullopt, 2, CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuMemUnmap(1, 1), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(driver_.cuMemUnmap(1, 1), CUDA_SUCCESS);
}

TEST_F(FaultInjectingDriverTest, MayFailAfterTheCallWasMade) {
  driver_.inject({EntryPoint::cuMemRelease, 1, CUDA_ERROR_UNKNOWN, FaultTiming::after});
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u);
}

TEST_F(FaultInjectingDriverTest, ALastingFaultStaysUntilCleared) {
  driver_.inject({EntryPoint::cuMemRelease, 2, CUDA_ERROR_UNKNOWN, FaultTiming::instead, true});
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_ERROR_UNKNOWN);
  driver_.clear();
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_SUCCESS);
}

TEST_F(FaultInjectingDriverTest, CountsFromTheMomentOfAdding) {
  driver_.cuMemRelease(1);
  driver_.inject({EntryPoint::cuMemRelease, 1, CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_ERROR_UNKNOWN);
}

TEST_F(FaultInjectingDriverTest, TheFirstOfTwoFaultsAnswersAndBothAreSpent) {
  driver_.inject({EntryPoint::cuMemRelease, 1, CUDA_ERROR_UNKNOWN});
  driver_.inject({std::nullopt, 1, CUDA_ERROR_NOT_READY});
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_SUCCESS);
}

TEST_F(FaultInjectingDriverTest, ExplainsItsOwnFailuresOnly) {
  driver_.inject({EntryPoint::cuMemRelease, 1, CUDA_ERROR_UNKNOWN});
  fake_->answer(EntryPoint::cuMemUnmap, CUDA_ERROR_INVALID_VALUE, "a real reason");
  const auto injected = try_call<EntryPoint::cuMemRelease>(driver_, 1);
  ASSERT_FALSE(injected);
  EXPECT_EQ(injected.failure().rule, "This failure was injected by the fault cuMemRelease:1:UNKNOWN");
  const auto real = try_call<EntryPoint::cuMemUnmap>(driver_, 1, 1);
  ASSERT_FALSE(real);
  EXPECT_EQ(real.failure().rule, "a real reason");
}

TEST_F(FaultInjectingDriverTest, ExplanationsBelongToTheThread) {
  driver_.inject({EntryPoint::cuMemRelease, 1, CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(driver_.cuMemRelease(1), CUDA_ERROR_UNKNOWN);
  std::string elsewhere = "not asked";
  std::thread([&] { elsewhere = driver_.explanation(); }).join();
  EXPECT_EQ(elsewhere, "");
  EXPECT_NE(driver_.explanation(), "");
}

}  // namespace
}  // namespace cuvmm::driver
