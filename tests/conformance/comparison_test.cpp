#include "conformance/comparison.hpp"

#include <gtest/gtest.h>

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

TEST(Comparison, KnowsWhatTheEmulatedDriverDoesOtherwiseOnPurpose) {
  const Comparison known = compare("props.released", "OK", "INVALID_VALUE", true);
  EXPECT_EQ(known.verdict, Verdict::on_purpose);
  EXPECT_NE(known.reason, "");
  EXPECT_EQ(verdict("props.released", "OK", "NOT_FOUND"), Verdict::different);
  EXPECT_EQ(verdict("props.released", "OK", "INVALID_VALUE", false), Verdict::different);
}

TEST(Availability, DependsOnDevicesAndTheLibrary) {
  const auto why = [](const Needs& needs, int devices, bool emulated) {
    return why_unavailable({"a.case", {}, needs}, devices, emulated).has_value();
  };
  EXPECT_TRUE(why(needs_two_devices, 1, true));
  EXPECT_FALSE(why(needs_two_devices, 2, true));
  EXPECT_FALSE(why(needs_processes, 2, true));
  EXPECT_FALSE(why(needs_processes, 2, false));
  EXPECT_TRUE(why(needs_driver_library, 2, true));
  EXPECT_FALSE(why(needs_driver_library, 2, false));
}

}  // namespace

}  // namespace cuvmm::conformance
