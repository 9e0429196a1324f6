// Why a range is not published any more.
#pragma once

#include <cstdint>
#include <string_view>

namespace cuvmm::sharing {

// What the publisher tells those who are attached.
enum class Withdrawal : std::uint8_t {
  ended = 1,     // it is not offered any more
  sleep = 2,     // its memory is given back for a while; it will be published again
  replaced = 3,  // other memory takes its place, which will be published under the same name
};

// "ended", "sleep", "replaced".
[[nodiscard]] std::string_view to_string(Withdrawal why) noexcept;

}  // namespace cuvmm::sharing
