// Whether fabric handles are to be had.
#pragma once

#include <string>

#include "cuvmm/device.hpp"

namespace cuvmm::tour {

// Why memory there cannot have fabric handles, and what to do; empty if it can. The device says only that its kind of
// machine can have them, so a trial decides.
[[nodiscard]] std::string why_no_fabric_handles(const Device& device, const Location& location);

}  // namespace cuvmm::tour
