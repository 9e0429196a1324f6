#include "rules/rules.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iostream>

#include "command/output.hpp"
#include "command/words.hpp"
#include "emulator/rule.hpp"
#include "rules/page.hpp"

namespace cuvmm::rules {
namespace {

constexpr int exit_misuse = 2;

std::string in_capitals(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return text;
}

std::string page_of(const std::vector<emulator::RuleText>& rules, Format format) {
  switch (format) {
    case Format::json:
      return json_page(rules);
    case Format::markdown:
      return markdown_page(rules);
    case Format::text:
      break;
  }
  return text_page(rules);
}

}  // namespace

void add_options(CLI::App& command, Options& options) {
  command.add_option("ID", options.ids, "The rules to print, such as MAP-WHOLE-ALLOCATION; all where none is named");
  CLI::Option* json = command.add_flag_callback(
      "--json", [&options] { options.format = Format::json; }, "Write JSON instead of a page for people");
  command
      .add_flag_callback(
          "--markdown", [&options] { options.format = Format::markdown; }, "Write the page of the documentation")
      ->excludes(json);
}

int run_rules(const Options& options) {
  std::vector<emulator::RuleText> rules(emulator::rule_book.begin(), emulator::rule_book.end());
  if (!options.ids.empty()) rules.clear();
  for (const std::string& id : options.ids) {
    const auto rule = emulator::find_rule(in_capitals(id));
    if (!rule) {
      std::cerr << "cuvmm rules: there is no rule " << command::quoted(id) << "; `cuvmm rules` prints all there are\n";
      return exit_misuse;
    }
    rules.push_back(emulator::text(*rule));
  }
  try {
    command::write_out(page_of(rules, options.format));
  } catch (const command::OutputLost& error) {
    std::cerr << "cuvmm rules: " << error.what() << '\n';
    return exit_misuse;
  }
  return 0;
}

}  // namespace cuvmm::rules
