// Which sizes memory may have that somebody else tells of.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cuvmm/result.hpp"
#include "refusal.hpp"

namespace cuvmm::sharing {

// No driver has more, and sums with offsets and granularities do not overflow.
inline constexpr std::size_t most_bytes_of_memory = SIZE_MAX / 2;

[[nodiscard]] inline Result<void> require_size_of_memory(std::string_view call, std::size_t bytes,
                                                         std::string_view way_out) {
  if (bytes != 0 && bytes <= most_bytes_of_memory) return {};
  return invalid_use(call, fmt::format("bytes = {}", bytes),
                     bytes == 0 ? "A handle does not tell the size of its memory" : "No memory is that large",
                     std::string(way_out), "MAP-WHOLE-ALLOCATION");
}

}  // namespace cuvmm::sharing
