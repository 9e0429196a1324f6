// Words and numbers for people.
#pragma once

#include <cstdint>
#include <string>

namespace cuvmm::command {

// A text of somebody else's, a path above all, between quotes, with anything a terminal would obey replaced.
[[nodiscard]] std::string quoted(const std::string& text);

// "1,234,567".
[[nodiscard]] std::string with_separators(std::uint64_t number);

// "1,234,567 bytes", "1 byte".
[[nodiscard]] std::string bytes_in_words(std::uint64_t bytes);

}  // namespace cuvmm::command
