// The environment in which a program finds the emulated driver where it looks for the CUDA driver.
#pragma once

#include "emulate/command_line.hpp"

namespace cuvmm::emulate {

// Puts the folder of our libcuda.so.1 before all others in LD_LIBRARY_PATH, the options behind the settings in
// CUVMM_EMULATOR, over which they count, and a fresh machine into CUVMM_EMULATOR_MACHINE. Throws command::InputError or
// std::invalid_argument, whose text names the option, what it may be and the way out, if the settings make no machine
// or if the library is not there.
void prepare_environment(const Options& options);

}  // namespace cuvmm::emulate
