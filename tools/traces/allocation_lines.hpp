// Traces of allocations that have a line each for what happened.
#pragma once

#include <string>
#include <string_view>

#include "traces/allocation_trace.hpp"

namespace cuvmm::traces {

// The formats, told by the line that names the columns; they may come in any order, and there may be others:
//
// - action, addr_offset, size and stream, perhaps time_us: PyTorch's memory history as CSV. An allocation begins with
//   "alloc" and ends with "free_completed" (or "free"), when no stream uses it any more; what else happened
//   ("free_requested", "segment_alloc", "oom" ...) is the recording allocator's own and is left out.
// - Action, Pointer, Size and Stream, perhaps Time: what RMM's logging_resource_adaptor writes. "allocate", "free" or
//   "deallocate"; an "allocate failure" is passed over.
// - lower, upper and size: intervals of time, as MiniMalloc has them. What ends at `upper` is gone before anything
//   begins there.
//
// Whether the line names those of one of them.
[[nodiscard]] bool names_allocation_columns(std::string_view first_line);

// Reads such a trace. Throws TraceError for a broken line, with its number, and for a trace without allocations.
[[nodiscard]] AllocationTrace read_allocation_lines(std::string_view text, const std::string& name);

}  // namespace cuvmm::traces
