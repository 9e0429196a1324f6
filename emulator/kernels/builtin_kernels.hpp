// The project's own kernels, for the emulated driver.
#pragma once

#include <vector>

#include "emulator/host_kernel.hpp"

namespace cuvmm::emulator {

// Every kernel named in gpu/kernel_signatures.hpp.
[[nodiscard]] std::vector<HostKernel> builtin_kernels();

}  // namespace cuvmm::emulator
