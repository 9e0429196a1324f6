// The collectives (cuvmm/gpu/*.cuh) as kernels of emulated devices.
#pragma once

#include <vector>

#include "emulator/host_kernel.hpp"

namespace cuvmm::emulator {

// Every kernel of src/gpu/collectives.cu, by its name. A block of one is a single thread, however many it is launched
// with.
[[nodiscard]] std::vector<HostKernel> collective_kernels();

}  // namespace cuvmm::emulator
