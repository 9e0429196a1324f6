#include "cuvmm/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace cuvmm {
namespace {

Failure timed_out() {
  Failure failure;
  failure.kind = ErrorKind::timed_out;
  failure.call = "wait";
  return failure;
}

TEST(Result, HoldsAValue) {
  Result<std::string> result = std::string("memory");
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result.value(), "memory");
  EXPECT_EQ(*result, "memory");
  EXPECT_EQ(result->size(), 6u);
  EXPECT_EQ(result.value_or("other"), "memory");
}

TEST(Result, HoldsAFailureAndThrowsItsType) {
  const Result<std::string> result = timed_out();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().call, "wait");
  EXPECT_EQ(result.value_or("other"), "other");
  EXPECT_THROW(static_cast<void>(result.value()), TimedOut);
}

TEST(Result, MovesAMoveOnlyValueOut) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(Result, OfVoidIsSuccessOrAFailure) {
  const Result<void> success;
  EXPECT_TRUE(success);
  EXPECT_NO_THROW(success.value());
  const Result<void> failed = timed_out();
  EXPECT_FALSE(failed);
  EXPECT_THROW(failed.value(), TimedOut);
  EXPECT_EQ(failed.failure().call, "wait");
}

}  // namespace
}  // namespace cuvmm
