// Why descriptors cannot be exchanged.
#pragma once

#include <string_view>

#include "cuvmm/sharing/locality.hpp"

namespace cuvmm::sharing {

// Names both, and what tells them apart.
[[nodiscard]] Failure different_hosts(std::string_view call, std::string_view who, const Locality& one,
                                      std::string_view whom, const Locality& other);

}  // namespace cuvmm::sharing
