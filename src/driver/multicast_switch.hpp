// Whether multicast may be used at all.
#pragma once

#include <string>

namespace cuvmm::driver {

// Why the multicast entry points of a CUDA driver are not to be looked up, in a sentence; empty if they are.
[[nodiscard]] std::string why_multicast_is_off();

}  // namespace cuvmm::driver
