// Why descriptors cannot be exchanged, or a locality not be told.
#pragma once

#include <string_view>

#include "cuvmm/result.hpp"
#include "cuvmm/sharing/locality.hpp"

namespace cuvmm::sharing {

// Names both, and what tells them apart.
[[nodiscard]] Failure different_hosts(std::string_view call, std::string_view who, const Locality& one,
                                      std::string_view whom, const Locality& other);

// Refuses one with a text that is too long to be sent.
[[nodiscard]] Result<void> require_short_texts(std::string_view call, const Locality& locality);

}  // namespace cuvmm::sharing
