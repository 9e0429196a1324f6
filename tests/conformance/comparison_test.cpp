#include "conformance/comparison.hpp"

#include <gtest/gtest.h>

#include "conformance/findings.hpp"

namespace cuvmm::conformance {

namespace {

Verdict verdict(const std::string& id, const std::optional<std::string>& recorded, const std::string& answer,
                bool emulated = true) {
  return compare(id, recorded, answer, emulated).verdict;
}

TEST(Comparison, TellsEqualFromDifferent) {
  EXPECT_EQ(verdict("map.ok", "OK", "OK"), Verdict::equal);
  EXPECT_EQ(verdict("map.ok", "OK", "OK/1"), Verdict::different);
  EXPECT_EQ(verdict("map.ok", "OK", "OK/1", false), Verdict::different);
}

TEST(Comparison, HasNothingToCompareWithWhereNothingIsRecorded) {
  EXPECT_EQ(verdict("map.ok", std::nullopt, "OK"), Verdict::not_recorded);
  EXPECT_EQ(verdict("map.ok", "", "OK"), Verdict::different);
}

TEST(Comparison, ExcusesTheEmulatedDriverAloneForRefusingWhatCrashes) {
  EXPECT_EQ(verdict("map.handle_garbage", "(signal 11)", "INVALID_VALUE"), Verdict::crash_refused);
  EXPECT_EQ(verdict("map.handle_garbage", "(signal 11)", "OK"), Verdict::different);
  EXPECT_EQ(verdict("map.handle_garbage", "(signal 11)", "INVALID_VALUE", false), Verdict::different);
  EXPECT_EQ(verdict("map.handle_garbage", "(signal 11)", "(signal 11)", false), Verdict::equal);
}

TEST(Comparison, DoesNotExcuseWhereTheProcessorItselfFaults) {
  EXPECT_EQ(verdict("host.cpu_deref_after_unmap", "(signal 11)", "INVALID_VALUE"), Verdict::different);
  EXPECT_EQ(verdict("host.cpu_deref_after_unmap", "(signal 11)", "(signal 11)"), Verdict::equal);
}

TEST(Comparison, CallsNothingEqualThatWasEndedForItsTime) {
  EXPECT_EQ(verdict("map.ok", "OK", "(timed out)"), Verdict::timed_out);
  EXPECT_EQ(verdict("map.ok", "OK", "(timed out)", false), Verdict::timed_out);
  EXPECT_EQ(verdict("map.ok", "(timed out)", "(timed out)"), Verdict::timed_out);
  EXPECT_EQ(verdict("map.ok", std::nullopt, "(timed out)"), Verdict::timed_out);
  EXPECT_EQ(verdict("map.ok", "(timed out)", "OK"), Verdict::different);
}

TEST(Findings, NameACaseThatTimedOut) {
  Findings findings;
  findings.time_limit = std::chrono::seconds{7};
  findings.cases.push_back(compare("map.hangs", "OK", "(timed out)", true));
  const std::string page = as_page(findings);
  EXPECT_NE(page.find("Timed out, and killed after 7 s (--time-limit):\n  map.hangs\n"), std::string::npos) << page;
  EXPECT_NE(page.find("1 cases: 1 TIMED OUT, none different.\n"), std::string::npos) << page;
  EXPECT_NE(as_json(findings).find("\"verdict\": \"timed_out\""), std::string::npos);
  findings.cases = {compare("map.hangs", "OK", "OK", true)};
  EXPECT_EQ(as_page(findings).find("imed out,"), std::string::npos);
}

TEST(Comparison, KnowsWhatTheEmulatedDriverDoesOtherwiseOnPurpose) {
  const Comparison known = compare("props.released", "OK", "INVALID_VALUE", true);
  EXPECT_EQ(known.verdict, Verdict::on_purpose);
  EXPECT_NE(known.reason, "");
  EXPECT_EQ(verdict("props.released", "OK", "NOT_FOUND"), Verdict::different);
  EXPECT_EQ(verdict("props.released", "OK", "INVALID_VALUE", false), Verdict::different);
}

TEST(Availability, DependsOnDevicesTheLibraryAndTheScheduler) {
  const auto why = [](const Needs& needs, int devices, bool emulated, bool stepped = false) {
    return why_unavailable({"a.case", {}, needs}, {devices, emulated, stepped}).has_value();
  };
  EXPECT_TRUE(why(needs_two_devices, 1, true));
  EXPECT_FALSE(why(needs_two_devices, 2, true));
  EXPECT_FALSE(why(needs_processes, 2, true));
  EXPECT_FALSE(why(needs_processes, 2, false));
  EXPECT_TRUE(why(needs_driver_library, 2, true));
  EXPECT_FALSE(why(needs_driver_library, 2, false));
  EXPECT_TRUE(why(needs_concurrency, 2, true, true));
  EXPECT_FALSE(why(needs_concurrency, 2, true, false));
}

}  // namespace

}  // namespace cuvmm::conformance
