// Replays recorded allocations through several allocators.
#pragma once

#include "replay/options.hpp"

namespace cuvmm::replay {

// Does what the options ask for and returns the exit status: 0 if everything was replayed, also where an allocator
// refused something for want of memory; 1 if the driver failed; 2 if the trace or the options cannot be used or there
// is no such driver. The report goes to standard output, errors to standard error.
[[nodiscard]] int run_replay(const Options& options);

}  // namespace cuvmm::replay
