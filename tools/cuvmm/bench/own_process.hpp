// A turn in a process of its own: one that has had no memory before, and so gets none that has to be cleared for it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/report.hpp"

namespace cuvmm::bench {

// Starts this program with those words, as which it makes a report, for one turn of one contender, and returns what
// that has measured. Throws std::runtime_error if it fails.
[[nodiscard]] std::vector<Way> turn_in_own_process(std::vector<std::string> words, std::size_t contender);

// The ways of the one report in such a process's output (as_json). Throws std::runtime_error if it is none.
[[nodiscard]] std::vector<Way> ways_in(const std::string& json);

}  // namespace cuvmm::bench
