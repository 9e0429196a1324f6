// The recorded answers of a real driver.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cuvmm::conformance {

using Answers = std::map<std::string, std::string>;  // id of a case -> answer

// From text of "id<TAB>answer" lines. Throws std::runtime_error, which names the source, if a line has no tab or if an
// id comes twice.
[[nodiscard]] Answers parse_answers(std::string_view text, const std::string& source);

// Those that are built in for a profile of the emulated driver; nothing if there are none for it.
[[nodiscard]] std::optional<Answers> recorded_answers(std::string_view profile);

}  // namespace cuvmm::conformance
