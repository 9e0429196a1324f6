// The door to the emulated driver.
#pragma once

#include <memory>

#include "driver/interface.hpp"
#include "emulator/configuration.hpp"

namespace cuvmm::emulator {

// A new machine with no state but its configuration. Throws std::invalid_argument for a configuration that makes no
// sense, std::system_error if the operating system refuses what is needed. Thread-safe. The last reference may go
// within a host function or a host kernel of the driver itself, which then ends after that.
[[nodiscard]] std::shared_ptr<driver::Interface> make_emulated_driver(const Configuration& configuration);

}  // namespace cuvmm::emulator
