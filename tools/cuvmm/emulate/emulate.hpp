// The command `cuvmm emulate`: any program of the driver's entry points, run on the emulated driver.
#pragma once

#include "emulate/command_line.hpp"

namespace cuvmm::emulate {

// Runs the command and returns the exit status. Puts the emulated driver and its settings into this process's
// environment, so that no other thread may use that meanwhile.
[[nodiscard]] int run_emulate(const Options& options);

}  // namespace cuvmm::emulate
