// `cuvmm rules`: the rule book of CUDA virtual memory management.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cuvmm::rules {

enum class Format { text, json, markdown };

struct Options {
  std::vector<std::string> ids;  // all rules where there are none
  Format format = Format::text;
};

// Adds the options to the command.
void add_options(CLI::App& command, Options& options);

// Prints the rules that are asked for. Answers the exit status: 0, or 2 for an id that is no rule's and for an output
// that cannot be written.
[[nodiscard]] int run_rules(const Options& options);

}  // namespace cuvmm::rules
