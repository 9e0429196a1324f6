// JSON as plain values.
#pragma once

#include <string_view>

#include "traces/plain_values.hpp"

namespace cuvmm::traces {

// Reads one JSON document. Nesting takes no stack. Throws Broken, with the place of the byte, for text that is none.
[[nodiscard]] PlainValues read_json(std::string_view text);

}  // namespace cuvmm::traces
