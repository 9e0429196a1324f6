// The rule book is true: each rule's case breaks it, and switching the rule off is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "conformance/answers.hpp"
#include "conformance/breaches.hpp"
#include "conformance/cases/case_process.hpp"
#include "conformance/cases/drivers.hpp"
#include "driver/advice.hpp"
#include "emulator/configuration.hpp"
#include "emulator/emulated_driver.hpp"
#include "emulator/rule.hpp"
#include "rules/page.hpp"

namespace cuvmm::emulator {

// For GoogleTest, which finds it by its name.
static void PrintTo(const RuleText& rule, std::ostream* stream) {
  *stream << rule.id;
}

}  // namespace cuvmm::emulator

namespace cuvmm::conformance {

namespace {

using emulator::Breach;
using emulator::Rule;
using emulator::rule_book;
using emulator::RuleText;

// In the process of the case: the environment is its own.
DriverFactory driver_with(const std::string& settings) {
  return [settings] {
    ::setenv("CUVMM_EMULATOR", settings.c_str(), 1);
    return emulated_driver(2)();
  };
}

// What the emulated driver answers to the rule's case; in the mode in which it keeps the rule.
std::string answer(const RuleText& rule, bool off) {
  static const Table table = all_cases();
  const Case* found = table.find(std::string(rule.proof));
  if (found == nullptr) return "there is no such case";
  std::string settings = rule.breach == Breach::accepted ? "mode=strict" : "mode=faithful";
  if (off) settings += ",rule-off=" + std::string(rule.id);
  return run_case(*found, forked(driver_with(settings)));
}

const std::string& recorded(const RuleText& rule) {
  static const Answers answers = recorded_answers("h200-580").value();
  return answers.at(std::string(rule.proof));
}

// "OK,CAPTURED_EVENT status=2": OK, CAPTURED_EVENT.
std::set<std::string> codes_in(std::string_view text) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  std::set<std::string> codes;
  for (std::size_t begin = 0; (begin = text.find_first_of(letters, begin)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_not_of(letters, begin), text.size());
    if (end - begin > 1) codes.emplace(text.substr(begin, end - begin));
    begin = end;
  }
  return codes;
}

// Whether what a driver was recorded to answer to the case is a breach of that kind, with a code that the rule names.
bool shows_the_breach(const RuleText& rule, std::string_view answer) {
  const std::set<std::string> answered = codes_in(answer);
  switch (rule.breach) {
    case Breach::refused: {
      const std::set<std::string> named = codes_in(rule.answers);
      return std::any_of(named.begin(), named.end(),
                         [&](const std::string& code) { return answered.count(code) != 0; });
    }
    case Breach::accepted:
      return answered.count("OK") != 0;
    case Breach::crashes:
      return answer.starts_with("(signal ");
    case Breach::emulated:
      return true;  // what a driver does there says nothing
  }
  return false;
}

std::string name_of(const RuleText& rule) {
  std::string name(rule.id);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class ARule : public testing::TestWithParam<RuleText> {};

TEST_P(ARule, IsKeptAndMissedWhenSwitchedOff) {
  const RuleText& rule = GetParam();
  if (rule.proof.empty()) {
    const auto breach = breaches().find(rule.rule);
    ASSERT_NE(breach, breaches().end()) << "a rule without a case needs a breach here";
    EXPECT_EQ(run_breach(breach->second, {}), "refused");
    EXPECT_EQ(run_breach(breach->second, rule.id), "accepted");
    return;
  }
  EXPECT_EQ(breaches().count(rule.rule), 0U) << "the case does it";
  const std::string kept = answer(rule, false);
  const std::string off = answer(rule, true);
  if (rule.breach == Breach::accepted) {
    EXPECT_NE(kept, recorded(rule)) << "strict mode accepts it";
    EXPECT_EQ(off, recorded(rule)) << "switched off, it is as with a real driver";
  } else {
    if (rule.breach != Breach::crashes) {
      EXPECT_EQ(kept, recorded(rule));
    }
    EXPECT_NE(off, kept);
  }
}

TEST_P(ARule, NamesACaseThatShowsIt) {
  const RuleText& rule = GetParam();
  if (rule.proof.empty()) return;
  EXPECT_TRUE(shows_the_breach(rule, recorded(rule)))
      << rule.id << " says \"" << rule.answers << "\", and " << rule.proof << " answered \"" << recorded(rule) << '"';
}

INSTANTIATE_TEST_SUITE_P(OfTheBook, ARule, testing::ValuesIn(rule_book),
                         [](const auto& test) { return name_of(test.param); });

// A rule says what a real driver does, so where strict mode does another thing, it has to say that.
TEST(RuleBook, StrictModeTellsWhereItRefusesWhatADriverAccepts) {
  emulator::Configuration configuration;
  configuration.mode = emulator::Mode::strict;
  const auto driver = emulator::make_emulated_driver(configuration);
  ASSERT_EQ(driver->cuInit(0), abi::CUDA_SUCCESS);
  abi::CUdeviceptr address = 0;
  ASSERT_EQ(driver->cuMemAddressReserve(&address, 4 << 20, 0, 0, 0), abi::CUDA_SUCCESS);
  EXPECT_EQ(driver->cuMemUnmap(address + 4096, 4096), abi::CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver->explanation().find("UNMAP-ALIGNED: "), 0U) << driver->explanation();
  const char* const stricter = "strict mode refuses what breaks this rule";
  EXPECT_NE(driver->explanation().find(stricter), std::string::npos) << driver->explanation();
  EXPECT_EQ(driver->cuMemAddressFree(address, 4096), abi::CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver->explanation().find("FREE-WHOLE-RESERVATION: "), 0U) << driver->explanation();
  EXPECT_EQ(driver->explanation().find(stricter), std::string::npos) << driver->explanation();
  EXPECT_EQ(driver->cuMemAddressFree(address, 4 << 20), abi::CUDA_SUCCESS);
}

TEST(RuleBook, SaysAllOfEachRuleAndNamesItOnce) {
  std::vector<std::string_view> ids;
  for (const RuleText& rule : rule_book) {
    for (const std::string_view text : {rule.says, rule.answers, rule.consequence, rule.way_out}) {
      ASSERT_FALSE(text.empty()) << rule.id;
      EXPECT_NE(text.back(), '.') << rule.id << ": the full stop is put behind it";
    }
    EXPECT_EQ(std::count(ids.begin(), ids.end(), rule.id), 0) << rule.id;
    EXPECT_EQ(emulator::find_rule(rule.id), rule.rule);
    ids.push_back(rule.id);
  }
  EXPECT_FALSE(emulator::find_rule("NO-SUCH-RULE"));
}

TEST(RuleBook, HasEveryRuleThatAdviceNames) {
  std::size_t named = 0;
  for (std::size_t entry = 0; entry < driver::entry_point_count; ++entry)
    for (int code = 1; code < 1000; ++code) {
      std::istringstream ids{std::string(
          driver::advice_for(static_cast<driver::EntryPoint>(entry), static_cast<abi::CUresult>(code)).rule_ids)};
      for (std::string id; std::getline(ids >> std::ws, id, ',');) {
        EXPECT_TRUE(emulator::find_rule(id)) << id;
        ++named;
      }
    }
  EXPECT_GT(named, 0U);
}

TEST(RuleBook, IsWhatTheDocumentationHas) {
  std::ifstream file(CUVMM_RULES_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), rules::markdown_page({rule_book.begin(), rule_book.end()}))
      << "make it anew: cuvmm rules --markdown > docs/rules.md";
}

}  // namespace

}  // namespace cuvmm::conformance
