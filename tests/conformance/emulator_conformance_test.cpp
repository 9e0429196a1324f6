// The emulated driver, in faithful mode, answers what the recorded real driver answered: one test a group of cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "../sanitizers.hpp"
#include "conformance/answers.hpp"
#include "conformance/cases/case_process.hpp"
#include "conformance/cases/drivers.hpp"
#include "conformance/comparison.hpp"

namespace cuvmm::conformance {

namespace {

using namespace std::chrono_literals;

// "copy" of "copy.no_access", "capture.global" of "capture.global.free": a test's worth of cases.
std::string test_group_of(const std::string& id) {
  const std::size_t first = id.find('.');
  const std::size_t second = id.find('.', first + 1);
  return id.substr(0, second == std::string::npos ? first : second);
}

std::string test_name(std::string group) {
  for (char& letter : group)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return group;
}

const Table& table() {
  static const Table cases = all_cases();
  return cases;
}

const Answers& recorded() {
  static const Answers answers = recorded_answers("h200-580").value();
  return answers;
}

// Under the thread sanitizer there are not enough addresses for some (docs/emulator.md).
bool too_large(const std::string& id) {
  static const std::set<std::string> large = {"reserve.2^40",       "reserve.2^44",       "reserve.2^46",
                                              "reserve.align_2^40", "reserve.1000_of_1T", "reserve.memory_accounted"};
  return test::thread_sanitizer && (large.count(id) != 0 || id.starts_with("border.reserve"));
}

// The recorded cases of a group that are asked of the emulator, in the table's order.
std::vector<Case> cases_of(const std::string& group) {
  std::vector<Case> cases;
  for (const Case& each : table().cases())
    if (test_group_of(each.id) == group && recorded().count(each.id) != 0 && !why_unavailable(each, {2, true, false}) &&
        !too_large(each.id))
      cases.push_back(each);
  return cases;
}

std::vector<std::string> groups() {
  std::vector<std::string> names;
  for (const Case& each : table().cases())
    if (const std::string name = test_group_of(each.id);
        std::find(names.begin(), names.end(), name) == names.end() && !cases_of(name).empty())
      names.push_back(name);
  return names;
}

void expect_same(const std::string& id, const std::string& answer) {
  const Comparison comparison = compare(id, recorded().at(id), answer, true);
  EXPECT_NE(comparison.verdict, Verdict::different)
      << id << "\n  recorded \"" << comparison.recorded << "\"\n  emulated \"" << answer << '"';
  EXPECT_EQ(comparison.verdict == Verdict::on_purpose, find_deviation(id) != nullptr)
      << id << " differs no longer: it is no exception any more";
}

class EmulatorConformance : public testing::TestWithParam<std::string> {};

// Each case with a driver of its own, and a machine to share for those that start processes.
void perform_emulated(const Case& wanted, int descriptor) {
  write_to(descriptor, perform(wanted, emulated_driver(machine_for(wanted.needs))));
}

TEST_P(EmulatorConformance, AnswersAsTheRecordedDriver) {
  PoolOptions options;
  options.time_limit = 120s;
  options.jobs = 2;
  std::size_t asked = 0;
  run_cases(cases_of(GetParam()), perform_emulated, options, [&](const Case& each, const std::string& answer) {
    expect_same(each.id, answer);
    ++asked;
  });
  EXPECT_EQ(asked, cases_of(GetParam()).size());
}

INSTANTIATE_TEST_SUITE_P(Recorded, EmulatorConformance, testing::ValuesIn(groups()),
                         [](const auto& test) { return test_name(test.param); });

TEST(RecordedAnswers, AreAllOfCasesThatExist) {
  for (const auto& [id, answer] : recorded())
    EXPECT_NE(table().find(id), nullptr) << id << " is recorded as " << answer;
}

TEST(RecordedAnswers, AreThereForEveryCase) {
  for (const Case& each : table().cases()) EXPECT_EQ(recorded().count(each.id), 1U) << each.id;
}

TEST(RecordedAnswers, AreAllAskedOfTheEmulatorButForThoseThatNeedTheLibrary) {
  for (const Case& each : table().cases())
    EXPECT_EQ(each.needs.driver_library, why_unavailable(each, {2, true, false}).has_value()) << each.id;
}

}  // namespace

}  // namespace cuvmm::conformance
