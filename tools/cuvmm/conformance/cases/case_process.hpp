// Runs conformance cases, each in a fresh process.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "conformance/cases/case.hpp"
#include "conformance/cases/process_pool.hpp"

namespace cuvmm::conformance {

// Performs a case in the process that is there for it, and writes the answer to the descriptor. It need not return.
using Performer = std::function<void(const Case&, int descriptor)>;

// The answer of a case, performed in this process with a driver made now.
[[nodiscard]] std::string perform(const Case& wanted, const DriverFactory& make_driver);

// Performs cases in the forked process itself: for programs in which no driver was made before.
[[nodiscard]] Performer forked(DriverFactory make_driver);

// Runs one case and returns what it said, or "(signal 11)", "(timed out)", "(exit 1)".
[[nodiscard]] std::string run_case(const Case& wanted, const Performer& performer,
                                   std::chrono::seconds time_limit = PoolOptions{}.time_limit);

// Runs the cases, several at a time, and reports their answers in their order.
using Report = std::function<void(const Case&, const std::string& answer)>;
void run_cases(const std::vector<Case>& cases, const Performer& performer, const PoolOptions& options,
               const Report& report);

}  // namespace cuvmm::conformance
