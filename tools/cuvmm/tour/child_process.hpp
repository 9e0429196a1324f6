// This program, run once more with other arguments.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace cuvmm::tour {

// Runs this program with the arguments, the same environment and standard error, and nothing to read, and returns what
// it wrote to standard output. Throws std::runtime_error if it cannot be started, if it ended by a signal or with a
// status other than 0, or if it has not ended by the deadline, upon which it is killed.
[[nodiscard]] std::string output_of_self(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline);

}  // namespace cuvmm::tour
