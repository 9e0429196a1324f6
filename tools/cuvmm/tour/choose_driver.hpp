// Which driver the command works with.
#pragma once

#include <string>

#include "cuvmm/driver.hpp"
#include "tour/options.hpp"

namespace cuvmm::tour {

struct OpenedDriver {
  Driver driver;
  std::string remark;  // why it is not the driver that the user may expect; empty if it is
};

// Opens and initialises the driver of that choice (an automatic one obeys the environment variable CUVMM_DRIVER), with
// at least `devices` devices. The emulated driver is configured by the environment (docs/emulator.md) and gets that
// many devices. The environment variable CUVMM_LIE wraps the driver into one that lies (docs/tour.md). Throws
// cuvmm::Error if there is no such driver, InputError if it has too few devices.
[[nodiscard]] OpenedDriver open_driver(DriverChoice choice, int devices);

}  // namespace cuvmm::tour
