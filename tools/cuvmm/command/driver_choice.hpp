// Which driver a command works with: the option --driver.
#pragma once

#include <string>

#include "cuvmm/driver.hpp"

namespace CLI {
class App;
}

namespace cuvmm::command {

enum class DriverChoice {
  automatic,  // what CUVMM_DRIVER names; else the CUDA driver if it has a device, else the emulated one, said aloud
  cuda,
  emulated,
};

// Adds the option --driver.
void add_driver_option(CLI::App& command, DriverChoice& choice);

struct OpenedDriver {
  Driver driver;
  std::string remark;  // why it is not the driver that the user may expect; empty if it is
};

// Opens and initialises the driver of that choice (an automatic one obeys the environment variable CUVMM_DRIVER), with
// at least `devices` devices. The emulated driver is configured by the environment (docs/emulator.md) and gets that
// many devices. The environment variable CUVMM_LIE wraps the driver into one that lies (docs/tour.md). Throws
// cuvmm::Error if there is no such driver, InputError if it has too few devices.
[[nodiscard]] OpenedDriver open_driver(DriverChoice choice, int devices);

}  // namespace cuvmm::command
