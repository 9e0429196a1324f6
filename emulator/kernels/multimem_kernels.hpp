// Single multimem instructions as kernels of emulated devices.
#pragma once

#include <vector>

#include "emulator/host_kernel.hpp"

namespace cuvmm::emulator {

// Every kernel of gpu/multimem_kernels.hpp.
[[nodiscard]] std::vector<HostKernel> multimem_kernels();

}  // namespace cuvmm::emulator
