// The doctor: what this machine's devices can do for virtual memory, and what to do where they cannot.
#pragma once

#include "cuvmm/driver.hpp"
#include "doctor/findings.hpp"
#include "doctor/options.hpp"

namespace cuvmm::doctor {

// Looks at every device of the driver, or at that many. Throws cuvmm::Error if the driver does not even tell its
// devices.
[[nodiscard]] Findings examine(const Driver& driver, bool probe, int devices = 0);

// Does what the options ask for and returns the exit status: 0 if nothing needs action, 1 if something does
// (needs_action), 2 if there is no such driver or the report cannot be written. The report goes to standard output,
// errors to standard error.
[[nodiscard]] int run_doctor(const Options& options);

}  // namespace cuvmm::doctor
