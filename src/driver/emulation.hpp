// Whether there is hardware behind a driver.
#pragma once

#include "driver/interface.hpp"

namespace cuvmm::driver {

// Whether the machine is emulated, also where the driver is one under the CUDA driver's name: then what helps is a
// setting of the emulated machine, and nothing that is done to this one.
[[nodiscard]] inline bool is_emulation(const Interface& driver) {
  return driver.emulated() || driver.emulated_place().has_value();
}

}  // namespace cuvmm::driver
