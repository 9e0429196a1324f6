// What the transport's own messages hold, as bytes and back. Reading takes anything and answers nothing for what is no
// such content.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuvmm/error.hpp"
#include "cuvmm/sharing/locality.hpp"

namespace cuvmm::sharing {

inline constexpr std::size_t most_token_bytes = 4096;
inline constexpr std::size_t most_text_bytes = 2048;  // of a locality and a failure, each

// What each end says first.
struct Introduction {
  Locality locality;
  std::string token;
};

[[nodiscard]] std::vector<std::byte> encode(const Introduction& introduction);
[[nodiscard]] std::optional<Introduction> decode_introduction(std::span<const std::byte> bytes);

// Long texts are cut.
[[nodiscard]] std::vector<std::byte> encode(const Failure& failure);
[[nodiscard]] std::optional<Failure> decode_failure(std::span<const std::byte> bytes);

}  // namespace cuvmm::sharing
