// What the command line asks of the tour.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command/driver_choice.hpp"

namespace CLI {
class App;
}

namespace cuvmm::tour {

struct Options {
  std::string file;
  command::DriverChoice driver = command::DriverChoice::automatic;
  int devices = 1;
  bool json = false;
  bool list = false;
  std::vector<std::string> stops;  // ids; empty for all
};

// Adds the tour's options and its FILE to the command.
void add_options(CLI::App& command, Options& options);

// What is wrong with the options as a whole, in one sentence; empty if nothing is.
[[nodiscard]] std::string contradiction(const Options& options);

}  // namespace cuvmm::tour
