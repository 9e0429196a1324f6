// `cuvmm conformance --sequences`.
#pragma once

#include "conformance/options.hpp"

namespace cuvmm::conformance {

// As run_conformance, for options that ask for sequences. Throws what that turns into an exit status.
[[nodiscard]] int run_sequences(const Options& options);

}  // namespace cuvmm::conformance
