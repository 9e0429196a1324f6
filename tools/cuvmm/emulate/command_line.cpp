#include "emulate/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "command/words.hpp"

namespace cuvmm::emulate {

void add_options(CLI::App& command, Options& options) {
  command.add_option("--devices", options.devices, "How many devices there are")->option_text("N");
  command
      .add_option("--nodes", options.nodes,
                  "How many nodes the machine has; programs are on node 0 unless told otherwise")
      ->option_text("N");
  command.add_option("--memory", options.memory, "Each device's memory, such as 8GiB")->option_text("SIZE");
  command.add_option("--profile", options.profile, "The kind of machine, such as h200-580")->option_text("P");
  command.add_flag("--strict", options.strict, "Refuse calls that break a rule, also where a real driver accepts them");
  command.add_flag("--explain", options.explain, "Tell each refusal on standard error, with the rule and the way out");
  command.footer(
      "The program and its arguments follow after --: cuvmm emulate [OPTIONS] -- CMD ARG...\n"
      "Ends with the command's exit status, or with 128 + N if signal N ended it; with 127 if there is no such "
      "command, "
      "126 if it cannot be run, 2 if cuvmm itself was misused. What is not given as an option is taken from "
      "CUVMM_EMULATOR and CUVMM_EMULATOR_CONFIG.");
}

std::optional<std::string> hint_at_the_mark(const CLI::App& command) {
  if (!command.parsed()) return std::nullopt;
  const std::vector<std::string> others = command.remaining();
  if (others.empty() || others.front().starts_with('-')) return std::nullopt;
  return fmt::format("{} is no option. The program to run follows after --: cuvmm emulate [OPTIONS] -- {}",
                     command::quoted(others.front()), fmt::join(others, " "));
}

std::vector<std::string> take_command(int& count, char** words) {
  if (count < 2 || std::string_view(words[1]) != "emulate") return {};
  char** const end = words + count;
  char** const mark = std::find(words + 2, end, std::string_view("--"));
  count = static_cast<int>(mark - words);
  return mark == end ? std::vector<std::string>() : std::vector<std::string>(mark + 1, end);
}

}  // namespace cuvmm::emulate
