// The driver that functions in C use.
#pragma once

#include "cuvmm/driver.hpp"

namespace cuvmm::pool {

// Opened when it is first asked for, and kept to the end of the process: one for all. Throws as Driver::open.
// Thread-safe.
[[nodiscard]] const Driver& process_driver();

}  // namespace cuvmm::pool
