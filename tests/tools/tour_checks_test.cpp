#include <gtest/gtest.h>

#include "tour/checks.hpp"

namespace cuvmm::tour {
namespace {

TEST(TourChecks, RecordWhatHeld) {
  Checks checks;
  checks.require(true, "one");
  checks.require(true, "two");
  ASSERT_EQ(checks.made().size(), 2U);
  EXPECT_EQ(checks.made()[1].statement, "two");
  EXPECT_TRUE(checks.made()[1].passed);
}

TEST(TourChecks, EndTheStopWhereOneDidNotHold) {
  Checks checks;
  checks.require(true, "one");
  try {
    checks.require(false, "the sum is 3", "it is 4");
    FAIL() << "it went on";
  } catch (const CheckFailed& failed) {
    EXPECT_STREQ(failed.what(), "the sum is 3: it is 4");
  }
  ASSERT_EQ(checks.made().size(), 2U);
  EXPECT_TRUE(checks.made()[0].passed);
  EXPECT_FALSE(checks.made()[1].passed);
}

TEST(TourChecks, OneThatIsLeftOutSaysWhyAndEndsNothing) {
  Checks checks;
  checks.leave_out("memory of two devices", "there is one");
  checks.require(true, "it holds");
  ASSERT_EQ(checks.made().size(), 2U);
  EXPECT_EQ(checks.made()[0].statement, "memory of two devices");
  EXPECT_EQ(checks.made()[0].left_out, "there is one");
  EXPECT_EQ(checks.made()[1].left_out, "");
}

}  // namespace
}  // namespace cuvmm::tour
