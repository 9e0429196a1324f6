// The benchmarks: what cuvmm's ways cost beside others, measured in one process on the same work.
#pragma once

#include "bench/options.hpp"

namespace cuvmm::bench {

// Does what the options ask for and returns the exit status: 0 if all reports were made, whether or not a goal is met;
// 1 if one could not be made; 2 if there is no such driver or nothing can be written. Reports go to standard output,
// errors to standard error.
[[nodiscard]] int run_bench(const Options& options);

}  // namespace cuvmm::bench
