// The emulated driver, in faithful mode, answers what the recorded real driver answered: one test a group of cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "conformance/answers.hpp"
#include "conformance/case_process.hpp"
#include "conformance/drivers.hpp"

namespace cuvmm::conformance {

namespace {

using namespace std::chrono_literals;

constexpr const char* crash = "(signal 11)";

// The CPU itself dies of touching these addresses, with the emulated driver as with the real one.
const std::set<std::string> faults_of_the_cpu = {
    "host.cpu_deref_without_access", "host.cpu_deref_device_memory", "host.cpu_store_to_read_only",
    "host.cpu_deref_after_revoke",   "host.cpu_deref_after_unmap",   "copy.host_inaccessible_source",
};

// Where the emulated driver answers otherwise on purpose.
struct Exception {
  std::string answer;  // the emulated driver's
  std::string reason;
};

const std::map<std::string, Exception> exceptions = {
    {"props.released", {"INVALID_VALUE", "the driver reads freed memory here, and was lucky"}},
    {"sticky.unmap_under_kernel",
     {"NOT_READY OK ILLEGAL_ADDRESS ILLEGAL_ADDRESS",
      "the device still had the page's translation; the emulated one always notices"}},
    {"sticky.revoke_under_kernel",
     {"OK ILLEGAL_ADDRESS", "the device still had the page's translation; the emulated one always notices"}},
    {"memory_info.allocated_1048577",
     {"2048", "the driver had room left in a block; the emulated heap takes a new one"}},
};

// These need several processes on one emulated machine, which the emulator does not offer.
const std::set<std::string> left_out = {
    "xproc.exporter_killed", "xproc.exporter_killed_before_import", "xproc.integer_only",
    "xproc.legacy_ipc",      "xproc.store_seen_by_exporter",
};

// "copy" of "copy.no_access", "capture.global" of "capture.global.free": a test's worth of cases.
std::string group_of(const std::string& id) {
  const std::size_t first = id.find('.');
  const std::size_t second = id.find('.', first + 1);
  return id.substr(0, second == std::string::npos ? first : second);
}

std::string test_name(std::string group) {
  std::replace(group.begin(), group.end(), '.', '_');
  return group;
}

const Table& table() {
  static const Table cases = all_cases();
  return cases;
}

const std::map<std::string, std::string>& recorded() {
  static const std::map<std::string, std::string> answers = read_answers(CUVMM_CONFORMANCE_ANSWERS);
  return answers;
}

// The recorded cases of a group that are asked of the emulator, in the table's order.
std::vector<Case> cases_of(const std::string& group) {
  std::vector<Case> cases;
  for (const Case& each : table().cases())
    if (group_of(each.id) == group && recorded().count(each.id) != 0 && left_out.count(each.id) == 0)
      cases.push_back(each);
  return cases;
}

std::vector<std::string> groups() {
  std::vector<std::string> names;
  for (const Case& each : table().cases())
    if (const std::string name = group_of(each.id);
        std::find(names.begin(), names.end(), name) == names.end() && !cases_of(name).empty())
      names.push_back(name);
  return names;
}

// Where the real driver brings the process down, the emulated one refuses.
bool same(const std::string& id, const std::string& real, const std::string& emulated) {
  if (real == crash && faults_of_the_cpu.count(id) == 0) return emulated.find("INVALID_VALUE") != std::string::npos;
  return emulated == real;
}

void expect_same(const std::string& id, const std::string& real, const std::string& emulated) {
  if (const auto exception = exceptions.find(id); exception != exceptions.end()) {
    EXPECT_EQ(emulated, exception->second.answer) << id << " is an exception; the real driver answered " << real;
    EXPECT_FALSE(same(id, real, emulated)) << id << " differs no longer: it is no exception any more";
  } else {
    EXPECT_TRUE(same(id, real, emulated)) << id << "\n  recorded \"" << real << "\"\n  emulated \"" << emulated << '"';
  }
}

class EmulatorConformance : public testing::TestWithParam<std::string> {};

TEST_P(EmulatorConformance, AnswersAsTheRecordedDriver) {
  RunOptions options;
  options.time_limit = 120s;
  options.jobs = 2;
  std::size_t asked = 0;
  run_cases(cases_of(GetParam()), emulated_driver(), options, [&](const Case& each, const std::string& answer) {
    expect_same(each.id, recorded().at(each.id), answer);
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

TEST(RecordedAnswers, HaveExceptionsThatAreRecorded) {
  for (const auto& [id, exception] : exceptions) {
    EXPECT_EQ(recorded().count(id), 1U) << id;
    std::cout << "answers otherwise on purpose: " << id << ": " << exception.answer << ": " << exception.reason << '\n';
  }
}

TEST(RecordedAnswers, AreAllAskedOfTheEmulatorButForThoseLeftOut) {
  for (const Case& each : table().cases()) EXPECT_EQ(each.needs.processes, left_out.count(each.id) != 0) << each.id;
  for (const std::string& id : left_out) std::cout << "left out, as it needs several processes: " << id << '\n';
}

}  // namespace

}  // namespace cuvmm::conformance
