// `cuvmm bench` from outside, on the emulated driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "program.hpp"

namespace cuvmm::tests {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

ProgramResult bench(const Words& more) {
  Words words{"bench", "--driver", "emulated"};
  words.insert(words.end(), more.begin(), more.end());
  return run_program(words);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The one report of that run.
Json report_of(Words words) {
  words.insert(words.end(), {"--json", "--rounds", "2"});
  const ProgramResult result = bench(words);
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  const Json json = Json::parse(result.output, nullptr, false);
  EXPECT_EQ(json["reports"].size(), 1U);
  EXPECT_EQ(json["emulated"], true);
  return json["reports"][0];
}

std::uint64_t calls_of(const Json& report, const std::string& way) {
  for (const Json& each : report["ways"])
    if (each["name"] == way) return each["driver_calls"][0];
  ADD_FAILURE() << "no way is called " << way << " in " << report["ways"].dump();
  return 0;
}

Words ways_of(const Json& report) {
  Words names;
  for (const Json& each : report["ways"]) names.push_back(each["name"]);
  return names;
}

TEST(BenchCommand, ListsItsReports) {
  const ProgramResult result = bench({"--list"});
  EXPECT_EQ(result.status, 0);
  for (const char* name : {"mapping", "growth", "reading", "bandwidth", "sleep", "retire", "attach"})
    EXPECT_TRUE(contains(result.output, std::string(name) + " ")) << name << " in\n" << result.output;
}

TEST(BenchCommand, MakesTheReportsThatAreNamed) {
  const ProgramResult result = bench({"mapping", "retire", "--rounds", "2"});
  EXPECT_EQ(result.status, 0) << result.errors;
  for (const char* part : {"mapping: ", "retire: ", "driver calls", "times mean nothing"})
    EXPECT_TRUE(contains(result.output, part)) << part << " in\n" << result.output;
  EXPECT_FALSE(contains(result.output, "growth: "));
  EXPECT_FALSE(contains(result.output, "goal"));
}

TEST(BenchCommand, RefusesWhatItDoesNotKnow) {
  const ProgramResult unknown = bench({"everything"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(contains(unknown.errors, "there are: mapping")) << unknown.errors;
  EXPECT_EQ(unknown.errors.find("cuvmm bench: "), 0U) << unknown.errors;
  EXPECT_EQ(bench({"mapping", "--rounds", "0"}).status, 2);
}

TEST(BenchCommand, RefusesOptionsOfReportsThatAreNotMade) {
  const ProgramResult refused = bench({"mapping", "--threads", "2", "--rounds", "2"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(contains(refused.errors, "--threads is for the report sleep")) << refused.errors;
  EXPECT_EQ(bench({"retire", "--chunk-mib", "2", "--rounds", "2"}).status, 2);
  EXPECT_EQ(bench({"sleep", "--threads", "2", "--staging-mib", "1", "--rounds", "1"}).status, 0);
}

TEST(BenchCommand, MappingTakesNoMoreCallsThroughTheLibrary) {
  const Json report = report_of({"mapping"});
  EXPECT_EQ(report["ratios"].size(), 4U);
  for (const Json& each : report["ratios"]) EXPECT_EQ(each["ratio"]["value"], 1.0) << each.dump();
}

TEST(BenchCommand, GrowingTakesAsManyCallsAsItMakesChunks) {
  const Json report = report_of({"growth", "--mib", "256"});
  // 2 MiB, then 64 MiB each, the last append shorter: five chunks of three calls.
  EXPECT_EQ(calls_of(report, "DeviceBuffer, exact"), 15U);
  EXPECT_EQ(calls_of(report, "raw calls, chunks of 64 MiB"), 15U);
  EXPECT_EQ(calls_of(report, "raw calls, chunks of 2 MiB"), 3U * 128);
  EXPECT_LT(calls_of(report, "DeviceBuffer, geometric without limit"), 15U);
}

TEST(BenchCommand, TakesEachTurnInAProcessOfItsOwnWhereItIsAskedTo) {
  const Json here = report_of({"growth", "--mib", "256"});
  const Json apart = report_of({"growth", "--mib", "256", "--own-processes"});
  EXPECT_EQ(ways_of(apart), ways_of(here));
  EXPECT_EQ(apart["ways"], here["ways"]);
  EXPECT_TRUE(contains(apart["settings"][0], "2 rounds in alternating order, each turn in a process of its own"));
}

TEST(BenchCommand, RefusesProcessesForOtherReports) {
  for (const Words& words :
       {Words{"mapping", "--own-processes"}, Words{"--own-processes"}, Words{"growth", "mapping", "--own-processes"}}) {
    const ProgramResult refused = bench(words);
    EXPECT_EQ(refused.status, 2);
    EXPECT_TRUE(contains(refused.errors, "--own-processes is for the report growth")) << refused.errors;
  }
}

TEST(BenchCommand, AKernelReadsWhileMemoryGrows) {
  const Json report = report_of({"reading", "--mib", "128"});
  EXPECT_EQ(report["ways"].size(), 6U);
  EXPECT_GT(calls_of(report, "exact: during growth"), 0U);
  EXPECT_EQ(calls_of(report, "exact: before and after"), 0U);
}

TEST(BenchCommand, APeerTakesPartWhereItIsAskedFor) {
  const auto has_peer = [](const Words& ways) {
    return std::find(ways.begin(), ways.end(), "read, stitched, remote part") != ways.end();
  };
  EXPECT_FALSE(has_peer(ways_of(report_of({"bandwidth"}))));
  EXPECT_TRUE(has_peer(ways_of(report_of({"bandwidth", "--devices", "2"}))));
}

TEST(BenchCommand, SleepingCopiesInPiecesWhereMemoryIsPageable) {
  const Json report = report_of({"sleep", "--mib", "8"});
  EXPECT_EQ(calls_of(report, "sleep, discarded"), 2U) << "unmap, release";
  EXPECT_EQ(calls_of(report, "wake, discarded"), 3U) << "create, map, grant";
  EXPECT_GT(calls_of(report, "sleep, pageable"), calls_of(report, "sleep, pinned"));
}

TEST(BenchCommand, AttachesAsOftenAsItIsTold) {
  const Json report = report_of({"attach", "--mib", "8", "--chunk-mib", "2"});
  EXPECT_TRUE(contains(report["title"], "in 4 chunks")) << report["title"];
  for (const Json& each : report["ways"]) EXPECT_EQ(each["driver_calls"].size(), 2U);
}

}  // namespace
}  // namespace cuvmm::tests
