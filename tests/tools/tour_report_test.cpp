#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tour/report.hpp"

namespace cuvmm::tour {
namespace {

StopReport stop(const std::string& id, Status status, const std::string& reason) {
  StopReport report;
  report.id = id;
  report.name = "Name of " + id;
  report.shown = "something";
  report.status = status;
  report.reason = reason;
  report.bytes = 1234567;
  report.seconds = 0.25;
  report.calls = {{"cuMemMap", 3}, {"cuMemUnmap", 1}};
  report.checks = {{"it holds", true}, {"it is so", status != Status::failed}};
  return report;
}

Report three_stops() {
  return {"some driver",
          {{0, "GPU A", 1000}, {1, "GPU B", 2000}},
          {stop("1.1", Status::passed, ""), stop("1.2", Status::failed, "it broke"),
           stop("1.3", Status::unavailable, "not here")}};
}

std::vector<std::string> lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

TEST(TourReport, FailsIfOneStopFailedAndNotForUnavailableOnes) {
  Report report = three_stops();
  EXPECT_TRUE(any_failed(report));
  report.stops.erase(report.stops.begin() + 1);
  EXPECT_FALSE(any_failed(report));
}

TEST(TourReport, TableHasALineForEachStopAndItsReason) {
  const std::vector<std::string> table = lines(as_table(three_stops()));
  const std::vector<std::string> expected{
      "Section  Shown            Bytes  Calls      Time  Result",
      "1.1      Name of 1.1  1,234,567      4  250.0 ms  passed",
      "         something",
      "1.2      Name of 1.2  1,234,567      4  250.0 ms  failed",
      "         something",
      "         failed: it broke",
      "1.3      Name of 1.3  1,234,567      4  250.0 ms  unavailable",
      "         something",
      "         unavailable: not here",
      "",
      "1 passed, 1 failed, 1 unavailable.",
  };
  EXPECT_EQ(table, expected);
}

TEST(TourReport, TableFitsOnATerminalAndTellsWhatWasLeftOut) {
  Report report = three_stops();
  report.stops.resize(1);
  report.stops[0].shown =
      "many words, of which there are more than a line of a terminal has room for; no fabric: there is none";
  report.stops[0].checks = {{"two of them agree", false, "the one cannot reach the other"},
                            {"fabric", false, "there is none"}};
  const std::vector<std::string> table = lines(as_table(report));
  const std::vector<std::string> expected{
      "Section  Shown            Bytes  Calls      Time  Result",
      "1.1      Name of 1.1  1,234,567      4  250.0 ms  passed",
      "         many words, of which there are more than a line of a terminal has room",
      "           for; no fabric: there is none",
      "         left out: two of them agree: the one cannot reach the other",
      "",
      "1 passed, 0 failed, 0 unavailable.",
  };
  EXPECT_EQ(table, expected);
}

TEST(TourReport, JsonHasTheFieldsAndNoOthers) {
  const auto json = nlohmann::json::parse(as_json(three_stops()));
  const auto expected = nlohmann::json::parse(R"({
    "driver": "some driver",
    "devices": [{"ordinal": 0, "name": "GPU A", "memory_bytes": 1000},
                {"ordinal": 1, "name": "GPU B", "memory_bytes": 2000}],
    "stops": [
      {"id": "1.1", "name": "Name of 1.1", "status": "passed", "reason": "", "bytes": 1234567, "seconds": 0.25,
       "calls": {"cuMemMap": 3, "cuMemUnmap": 1},
       "checks": [{"statement": "it holds", "passed": true}, {"statement": "it is so", "passed": true}]},
      {"id": "1.2", "name": "Name of 1.2", "status": "failed", "reason": "it broke", "bytes": 1234567,
       "seconds": 0.25, "calls": {"cuMemMap": 3, "cuMemUnmap": 1},
       "checks": [{"statement": "it holds", "passed": true}, {"statement": "it is so", "passed": false}]},
      {"id": "1.3", "name": "Name of 1.3", "status": "unavailable", "reason": "not here", "bytes": 1234567,
       "seconds": 0.25, "calls": {"cuMemMap": 3, "cuMemUnmap": 1},
       "checks": [{"statement": "it holds", "passed": true}, {"statement": "it is so", "passed": true}]}]})");
  EXPECT_EQ(json, expected);
}

TEST(TourReport, JsonOfACheckThatIsLeftOutHasNoAnswerAndTheReason) {
  Report report = three_stops();
  report.stops.resize(1);
  report.stops[0].checks = {{"two of them agree", false, "there is one"}};
  EXPECT_EQ(
      nlohmann::json::parse(as_json(report))["stops"][0]["checks"],
      nlohmann::json::parse(R"([{"statement": "two of them agree", "passed": null, "left_out": "there is one"}])"));
}

TEST(TourReport, JsonOfNothingHasEmptyLists) {
  EXPECT_EQ(nlohmann::json::parse(as_json({"d", {}, {}})),
            nlohmann::json::parse(R"({"driver": "d", "devices": [], "stops": []})"));
  EXPECT_TRUE(nlohmann::json::parse(as_json({"d", {}, {StopReport{}}}))["stops"][0]["calls"].is_object());
}

TEST(TourReport, JsonStaysJsonWhateverADeviceIsCalled) {
  Report report = three_stops();
  report.devices[0].name = "\xFF\"\n";
  EXPECT_EQ(nlohmann::json::parse(as_json(report))["devices"].size(), 2U);
}

TEST(TourReport, SecondsHaveAUnit) {
  EXPECT_EQ(readable_seconds(0.0000124), "12 us");
  EXPECT_EQ(readable_seconds(0.0124), "12.4 ms");
  EXPECT_EQ(readable_seconds(12.44), "12.4 s");
}

}  // namespace
}  // namespace cuvmm::tour
