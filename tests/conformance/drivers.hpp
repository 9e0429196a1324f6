// The drivers that cases can be run against.
#pragma once

#include "conformance/environment.hpp"

namespace cuvmm::conformance {

// Makes the CUDA driver of this machine, without initialising it.
[[nodiscard]] DriverFactory cuda_driver();

// Makes an emulated driver that pretends to be the recorded machine: two H200s, faithful in every answer. The kernels
// of the cases are registered with it.
[[nodiscard]] DriverFactory emulated_driver();

}  // namespace cuvmm::conformance
