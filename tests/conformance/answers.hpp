// The recorded answers of a real driver.
#pragma once

#include <map>
#include <string>

namespace cuvmm::conformance {

// id -> answer, from a file of "id<TAB>answer" lines. Throws std::runtime_error if it cannot be read, if a line has no
// tab, or if an id comes twice.
[[nodiscard]] std::map<std::string, std::string> read_answers(const std::string& path);

}  // namespace cuvmm::conformance
