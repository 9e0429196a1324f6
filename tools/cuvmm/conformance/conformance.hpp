// The command `cuvmm conformance`: what a driver answers, beside what a real one answered.
#pragma once

#include "conformance/options.hpp"

namespace cuvmm::conformance {

// Does what the options ask for and returns the exit status: 0 if nothing differs from what was recorded, 1 if
// something does, 2 if there is no such driver or recording, or if the report or the record cannot be written. The
// report goes to standard output, errors to standard error. For a process with one thread.
[[nodiscard]] int run_conformance(const Options& options);

}  // namespace cuvmm::conformance
