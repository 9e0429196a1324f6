#include "rules/page.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace cuvmm::rules {
namespace {

using emulator::Breach;
using emulator::RuleText;

std::string_view name_of(Breach breach) {
  switch (breach) {
    case Breach::refused:
      return "refused";
    case Breach::accepted:
      return "accepted";
    case Breach::crashes:
      return "crashes";
    case Breach::emulated:
      return "emulated";
  }
  return {};
}

std::string_view meaning_of(Breach breach) {
  switch (breach) {
    case Breach::refused:
      return "a driver refuses the call";
    case Breach::accepted:
      return "a driver accepts the call, and the harm comes later; the emulated driver warns, or refuses in strict "
             "mode";
    case Breach::crashes:
      return "a driver brings the process down; the emulated one answers an error";
    case Breach::emulated:
      return "a rule of the emulated driver alone";
  }
  return {};
}

std::string sentence(std::string_view text) {
  std::string whole(text);
  if (!whole.empty() && whole.front() >= 'a' && whole.front() <= 'z' && whole.substr(0, 2) != "cu")
    whole.front() = static_cast<char>(whole.front() - 'a' + 'A');
  return whole + ".";
}

}  // namespace

std::string text_page(const std::vector<RuleText>& rules) {
  std::string page;
  for (const RuleText& rule : rules) {
    if (!page.empty()) page += '\n';
    page += fmt::format("{} ({})\n  rule:        {}\n  answer:      {}\n  goes wrong:  {}\n  way out:     {}\n",
                        rule.id, meaning_of(rule.breach), sentence(rule.says), sentence(rule.answers),
                        sentence(rule.consequence), sentence(rule.way_out));
    if (!rule.proof.empty()) page += fmt::format("  shown by:    cuvmm conformance --match {}\n", rule.proof);
  }
  return page;
}

std::string json_page(const std::vector<RuleText>& rules) {
  auto all = nlohmann::json::array();
  for (const RuleText& rule : rules) {
    nlohmann::json entry = {{"id", rule.id},
                            {"rule", rule.says},
                            {"breach", name_of(rule.breach)},
                            {"answers", rule.answers},
                            {"consequence", rule.consequence},
                            {"way_out", rule.way_out}};
    entry["case"] = rule.proof.empty() ? nlohmann::json() : nlohmann::json(rule.proof);
    all.push_back(std::move(entry));
  }
  return nlohmann::json{{"rules", all}}.dump(2) + "\n";
}

std::string markdown_page(const std::vector<RuleText>& rules) {
  std::string page =
      "# The rules\n\n"
      "<!-- Made by `cuvmm rules --markdown` from emulator/rules.def; change that file. -->\n\n"
      "What a program owes the driver in return for virtual memory management, and what is around it. Failures, and\n"
      "warnings of the emulated driver, name the rule by its id; `cuvmm rules ID` prints it.\n\n"
      "What happens to a call that breaks a rule:\n\n";
  for (const Breach breach : {Breach::refused, Breach::accepted, Breach::crashes, Breach::emulated})
    page += fmt::format("- *{}*: {}.\n", name_of(breach), meaning_of(breach));
  page +=
      "\nThe case shows the rule: `cuvmm conformance --match CASE` asks it of a driver. A rule without one is shown "
      "by\n"
      "`tests/conformance/rule_book_test.cpp`. That test also switches each rule off, by the emulated driver's "
      "setting\n"
      "`rule-off=ID`, and fails unless the case, or the test's own breach, notices.\n";
  for (const RuleText& rule : rules) {
    page += fmt::format("\n## {}\n\n{}\n\n| | |\n| --- | --- |\n| a call that breaks it is | *{}* |\n", rule.id,
                        sentence(rule.says), name_of(rule.breach));
    page += fmt::format("| the driver answers | {} |\n| what goes wrong | {} |\n| way out | {} |\n", rule.answers,
                        rule.consequence, rule.way_out);
    if (!rule.proof.empty()) page += fmt::format("| case | `{}` |\n", rule.proof);
  }
  return page;
}

}  // namespace cuvmm::rules
