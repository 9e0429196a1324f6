// The driver that functions in C use.
#pragma once

#include <string_view>

#include "cuvmm/driver.hpp"

namespace cuvmm::pool {

// Opened when it is first asked for, and kept to the end of the process: one for all. Throws as Driver::open.
// Thread-safe.
[[nodiscard]] const Driver& process_driver();

// Throws InvalidUse in a forked child of the process that opened that driver, where no lock may be waited for: the
// thread that has it may not be there. `call`: what is refused.
void refuse_in_forked_child(std::string_view call);
[[nodiscard]] bool in_forked_child() noexcept;

}  // namespace cuvmm::pool
