#include "cuvmm/sharing/deadline.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace cuvmm::sharing {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::hours fifty_years(24 * 365 * 50);

void expect_passed(const Deadline& deadline, const char* what) {
  EXPECT_TRUE(deadline.passed()) << what;
  EXPECT_EQ(deadline.left(), 0ms) << what;
}

void expect_far(const Deadline& deadline, const char* what) {
  EXPECT_FALSE(deadline.passed()) << what;
  EXPECT_GT(deadline.left(), fifty_years) << what;
}

TEST(Deadline, OfADurationThatIsNegativeHasPassedHoweverLongItIs) {
  expect_passed(Deadline::in(0ns), "0");
  expect_passed(Deadline::in(-1ns), "-1 ns");
  expect_passed(Deadline::in(-30'000'000'000s), "more than fits into nanoseconds");
  expect_passed(Deadline::in(std::chrono::nanoseconds::min()), "nanoseconds::min()");
  expect_passed(Deadline::in(std::chrono::seconds::min() + 10s), "seconds::min() + 10 s");
  expect_passed(Deadline::in(std::chrono::hours::min()), "hours::min()");
  expect_passed(Deadline::in(std::chrono::duration<double>(-1e300)), "-1e300 s");
  expect_passed(Deadline::in(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN())), "no number");
}

TEST(Deadline, OfADurationThatIsVeryLongIsFarAway) {
  expect_far(Deadline::in(30'000'000'000s), "more than fits into nanoseconds");
  expect_far(Deadline::in(std::chrono::nanoseconds::max()), "nanoseconds::max()");
  expect_far(Deadline::in(std::chrono::seconds::max()), "seconds::max()");
  expect_far(Deadline::in(std::chrono::hours::max()), "hours::max()");
  expect_far(Deadline::in(std::chrono::days::max()), "days::max()");
  expect_far(Deadline::in(std::chrono::duration<double>(1e300)), "1e300 s");
  expect_far(Deadline::at(Deadline::Clock::time_point::max()), "time_point::max()");
}

TEST(Deadline, AtATimeLongAgoHasPassed) {
  expect_passed(Deadline::at(Deadline::Clock::time_point::min()), "time_point::min()");
  expect_passed(Deadline::at(Deadline::Clock::now()), "now");
  const Deadline later = Deadline::in(1h);
  EXPECT_FALSE(later.passed());
  EXPECT_GT(later.left(), 0ms);
  EXPECT_LE(later.left(), 1h);
}

}  // namespace
}  // namespace cuvmm::sharing
