// Failures of the operating system.
#pragma once

#include <string>
#include <string_view>

#include "cuvmm/error.hpp"

namespace cuvmm {

// What a system call failed with (errno), as a failure of the kind that it is.
[[nodiscard]] Failure system_failure(std::string_view call, std::string arguments, int error);

}  // namespace cuvmm
