// What the command line asks of the benchmarks.
#pragma once

#include <string>
#include <vector>

#include "bench/settings.hpp"
#include "command/driver_choice.hpp"

namespace CLI {
class App;
}

namespace cuvmm::bench {

struct Options {
  command::DriverChoice driver = command::DriverChoice::automatic;
  int devices = 1;
  bool json = false;
  bool list = false;
  std::vector<std::string> reports{};  // none: all
  Settings settings{};
};

// Adds the options of `cuvmm bench` to the command.
void add_options(CLI::App& command, Options& options);

}  // namespace cuvmm::bench
