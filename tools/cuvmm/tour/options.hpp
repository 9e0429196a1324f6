// What the command line asks of the tour.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace cuvmm::tour {

enum class DriverChoice {
  automatic,  // what CUVMM_DRIVER names; else the CUDA driver if it has a device, else the emulated one, said aloud
  cuda,
  emulated,
};

struct Options {
  std::string file;
  DriverChoice driver = DriverChoice::automatic;
  int devices = 1;
  bool json = false;
  bool list = false;
  std::vector<std::string> stops;  // ids; empty for all
};

// Adds the option --driver, which several commands share.
void add_driver_option(CLI::App& command, DriverChoice& choice);

// Adds the tour's options and its FILE to the command.
void add_options(CLI::App& command, Options& options);

// What is wrong with the options as a whole, in one sentence; empty if nothing is.
[[nodiscard]] std::string contradiction(const Options& options);

}  // namespace cuvmm::tour
