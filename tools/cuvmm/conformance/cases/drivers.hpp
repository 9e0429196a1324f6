// The drivers that cases can be run against.
#pragma once

#include <string>

#include "conformance/cases/case.hpp"

namespace cuvmm::conformance {

// Makes the CUDA driver of this machine, without initialising it.
[[nodiscard]] DriverFactory cuda_driver();

// Makes an emulated driver as the environment configures it (docs/emulator.md), with at least that many devices, of
// that profile if one is named, and silent: cases break rules on purpose. The kernels of the cases are registered with
// it. `machine` names the one that processes share, if the environment does not; without a name the driver has its own.
// Throws std::invalid_argument if the environment or the profile makes no machine.
[[nodiscard]] DriverFactory emulated_driver(int devices, const std::string& profile = {},
                                            const std::string& machine = {});

// Makes an emulated driver that pretends to be the recorded machine: two H200s, faithful in every answer.
[[nodiscard]] DriverFactory emulated_driver(const std::string& machine = {});

// A machine's name for this process and its children, if the case needs one to share.
[[nodiscard]] std::string machine_for(const Needs& needs);

}  // namespace cuvmm::conformance
