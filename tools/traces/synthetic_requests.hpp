// Requests that are made up, for those who have no trace.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/request_trace.hpp"

namespace cuvmm::traces {

// So many requests, the same ones for the same seed on every machine: in bursts, with prompts between 16 and 8,192
// tokens and answers between 8 and 1,024, short ones being far more frequent than long ones.
[[nodiscard]] std::vector<Request> synthetic_requests(std::size_t count, std::uint64_t seed = 1);

}  // namespace cuvmm::traces
