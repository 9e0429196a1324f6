// Whatever can be replayed, told by its first bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "traces/allocation_trace.hpp"
#include "traces/served_allocations.hpp"

namespace cuvmm::traces {

enum class WorkloadKind : unsigned char {
  allocations,  // lines of allocation_lines.hpp
  pickle,       // of a memory snapshot
  json,         // likewise
  requests,     // of request_trace.hpp
};

// Which of them it is. Throws TraceError where it is empty, compressed, or of columns that nobody knows.
[[nodiscard]] WorkloadKind kind_of_workload(std::string_view content, const std::string& name);

struct WorkloadSettings {
  Serving serving{};                    // of requests
  std::optional<std::size_t> device{};  // of a snapshot
};

// Reads it. Throws TraceError for what is broken.
[[nodiscard]] AllocationTrace read_workload(std::string_view content, const std::string& name,
                                            const WorkloadSettings& settings);

}  // namespace cuvmm::traces
