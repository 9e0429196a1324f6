// What the command line asks of the doctor.
#pragma once

#include "command/driver_choice.hpp"

namespace CLI {
class App;
}

namespace cuvmm::doctor {

struct Options {
  command::DriverChoice driver = command::DriverChoice::automatic;
  int devices = 0;  // how many are looked at; 0: all
  bool probe = false;
  bool json = false;
};

// Adds the doctor's options to the command.
void add_options(CLI::App& command, Options& options);

}  // namespace cuvmm::doctor
