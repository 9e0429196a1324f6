// What the benchmarks make of what they measured.
#include <gtest/gtest.h>

#include <cuvmm/cuvmm.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/contest.hpp"
#include "bench/meter.hpp"
#include "bench/report.hpp"
#include "driver/call.hpp"

namespace cuvmm::bench {
namespace {

Way way_of(const std::string& name, const std::vector<double>& milliseconds) {
  Way way{name};
  for (const double each : milliseconds) way.costs.push_back({each, static_cast<std::uint64_t>(10 * each)});
  return way;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(MedianOf, IsTheMiddleWithAnIntervalOfOrderStatistics) {
  EXPECT_EQ(median_of({3}).value, 3);
  EXPECT_EQ(median_of({3, 1}).value, 2);
  const Estimate few = median_of({5, 1, 4, 2, 3});
  EXPECT_EQ(few.value, 3);
  EXPECT_EQ(few.low, 1);
  EXPECT_EQ(few.high, 5);
  std::vector<double> many;
  for (int count = 0; count < 101; ++count) many.push_back(count);
  const Estimate found = median_of(many);
  EXPECT_EQ(found.value, 50);
  EXPECT_EQ(found.low, 40);
  EXPECT_EQ(found.high, 61);
}

TEST(Ratios, AreTakenRoundByRound) {
  Report report;
  report.ways = {way_of("ours", {1, 20, 300}), way_of("other", {2, 40, 600})};
  report.ratios = {{"ours", "other"}, {"ours", "other", true}, {"ours", "nobody's"}};
  const auto timed = compared(report, false);
  ASSERT_EQ(timed.size(), 2U) << "of a way that was not measured there is no ratio";
  EXPECT_EQ(timed[0].value.value, 0.5);
  EXPECT_EQ(timed[0].value.high, 0.5);
  EXPECT_EQ(timed[1].value.value, 2) << "of speed";
  const auto counted = compared(report, true);
  ASSERT_EQ(counted.size(), 1U) << "calls have no speed";
  EXPECT_EQ(counted[0].value.value, 0.5);
}

TEST(Goals, AreMetOrMissedOnAGpuAlone) {
  Report report;
  report.ways = {way_of("ours", {4, 4, 4}), way_of("other", {2, 2, 2})};
  report.ratios = {{"ours", "other", false, 2.0},
                   {"ours", "other", false, 1.9},
                   {"ours", "other", true, 0.5},
                   {"ours", "other", true, 0.51},
                   {"ours", "other"}};
  report.limits = {{"ours", 4}, {"ours", 3.9}, {"ours", 1, "a GiB", 4}};
  std::vector<std::optional<bool>> met;
  for (const Compared& each : compared(report, false)) met.push_back(each.met);
  EXPECT_EQ(met, (std::vector<std::optional<bool>>{true, false, true, false, std::nullopt}));
  met.clear();
  for (const Limited& each : limited(report, false)) met.push_back(each.met);
  EXPECT_EQ(met, (std::vector<std::optional<bool>>{true, false, true}));
  for (const Compared& each : compared(report, true)) EXPECT_EQ(each.met, std::nullopt);
  EXPECT_TRUE(limited(report, true).empty());
}

TEST(Page, ShowsGoalsBesideResults) {
  Report report{"growth", "a title"};
  report.ways = {way_of("ours", {4, 4, 4}), way_of("other", {2000, 2000, 2000})};
  report.ways[0].facts = {{"chunks", 12}, {"unused at most", 2_MiB, Unit::bytes}};
  report.ratios = {{"ours", "other", false, 0.1}, {"other", "ours", false, 0.1}};
  report.limits = {{"ours", 1}};
  const std::string page = as_page(report, false);
  for (const char* part : {"growth: a title", "4.00 ms", "2.00 s", "12 chunks, 2 MiB unused at most",
                           "time of ours / other  0.0020 (0.0020 to 0.0020)  goal <= 0.1: met", "goal <= 0.1: MISSED",
                           "goal <= 1.00 ms: MISSED"})
    EXPECT_TRUE(contains(page, part)) << part << " in\n" << page;
  EXPECT_FALSE(contains(as_page(report, true), "goal"));
  report.left_out = "a reason";
  EXPECT_FALSE(contains(as_page(report, false), "4.00 ms"));
  EXPECT_TRUE(contains(as_page(report, false), "left out: a reason"));
}

TEST(Json, HasWhatThePageShows) {
  Report report{"growth", "a title"};
  report.ways = {way_of("ours", {4, 5, 6}), way_of("other", {8, 10, 12})};
  report.ratios = {{"ours", "other", false, 0.1}};
  Findings findings{"driver", "device", "", false, "", {report}};
  const auto timed = nlohmann::json::parse(as_json(findings));
  EXPECT_EQ(timed["schema"], 1);
  EXPECT_EQ(timed["reports"][0]["ways"][0]["median_ms"]["value"], 5);
  EXPECT_EQ(timed["reports"][0]["ways"][0]["milliseconds"], (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(timed["reports"][0]["ratios"][0]["ratio"]["value"], 0.5);
  EXPECT_EQ(timed["reports"][0]["ratios"][0]["met"], false);
  findings.counts = true;
  const auto counted = nlohmann::json::parse(as_json(findings));
  EXPECT_EQ(counted["reports"][0]["ways"][0]["driver_calls"], (std::vector<int>{40, 50, 60}));
  EXPECT_EQ(counted["reports"][0]["ways"][0]["instructions"][0], nullptr);
  EXPECT_EQ(counted["reports"][0]["ratios"][0]["met"], nullptr);
}

class ContestTest : public testing::Test {
 protected:
  Meter meter_{Driver::emulated()};
};

TEST_F(ContestTest, TurnsGoTheOtherWayRoundInEveryOtherRound) {
  std::string order;
  Contest contest(meter_);
  for (const std::string name : {"a", "b", "c"})
    contest.add([&order, name](Turn& turn) { turn.measure(name, [&] { order += name; }); });
  const auto ways = contest.run({.rounds = 3, .warming_rounds = 1});
  EXPECT_EQ(order, "abcabccbaabc");
  ASSERT_EQ(ways.size(), 3U);
  EXPECT_EQ(ways[0].name, "a");
  for (const Way& each : ways) EXPECT_EQ(each.costs.size(), 3U) << "a round that is not counted";
}

TEST_F(ContestTest, WhatIsToldAgainTakesThePlaceOfWhatWasTold) {
  Contest contest(meter_);
  double number = 0;
  contest.add([&](Turn& turn) {
    turn.measure("a", [] {});
    turn.tell("a", {"rounds", ++number});
    turn.tell("a", {"other", 7});
  });
  const auto ways = contest.run({.rounds = 2});
  ASSERT_EQ(ways[0].facts.size(), 2U);
  EXPECT_EQ(ways[0].facts[0].value, 2);
}

// The emulated driver allocates memory for each stream; that is its own affair.
TEST_F(ContestTest, CallsAreCountedAndWhatHappensWithinThemIsNot) {
  using driver::call;
  using driver::EntryPoint;
  driver::Interface& calls = meter_.driver().interface();
  const CurrentContext context(meter_.driver().device(DeviceOrdinal(0)));
  const Cost streams = meter_.measure([&] {
    for (int count = 0; count < 5; ++count) {
      abi::CUstream stream = nullptr;
      call<EntryPoint::cuStreamCreate>(calls, &stream, 0U);
      call<EntryPoint::cuStreamDestroy>(calls, stream);
    }
  });
  EXPECT_EQ(streams.driver_calls, 10U);
  EXPECT_EQ(streams.allocations, 0U);
  const Cost own = meter_.measure([] {
    for (int count = 0; count < 3; ++count) delete new volatile int(count);
  });
  EXPECT_EQ(own.driver_calls, 0U);
  EXPECT_EQ(own.allocations, 3U);
  const Cost sum = streams + own;
  EXPECT_EQ(sum.driver_calls, 10U);
  EXPECT_EQ(sum.allocations, 3U);
}

TEST_F(ContestTest, InstructionsAreCountedOrItIsToldWhyNot) {
  const Cost little = meter_.measure([] {});
  EXPECT_EQ(little.instructions.has_value(), why_no_instructions().empty());
}

}  // namespace
}  // namespace cuvmm::bench
