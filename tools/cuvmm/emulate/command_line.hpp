// What `cuvmm emulate` is asked to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cuvmm::emulate {

// As they were given, if they were.
struct Options {
  std::optional<std::string> devices;
  std::optional<std::string> memory;
  std::optional<std::string> profile;
  std::optional<std::string> nodes;
  bool strict = false;
  bool explain = false;
  std::vector<std::string> command;  // the program and its arguments
};

void add_options(CLI::App& command, Options& options);

// What to say to somebody who left out the -- before the program; nothing if that is not what is wrong with the command
// line.
[[nodiscard]] std::optional<std::string> hint_at_the_mark(const CLI::App& command);

// Takes the words from the first "--" on from the command line of `cuvmm emulate`, and returns them without it: they
// are the command's own, whatever they look like. Command lines of other subcommands are left alone.
[[nodiscard]] std::vector<std::string> take_command(int& count, char** words);

}  // namespace cuvmm::emulate
