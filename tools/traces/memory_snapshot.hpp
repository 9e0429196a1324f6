// PyTorch's memory snapshot.
#pragma once

#include <optional>

#include "traces/allocation_trace.hpp"
#include "traces/plain_values.hpp"

namespace cuvmm::traces {

// The history of one device in what torch.cuda.memory._snapshot() answers: that device's, or the only one that has
// events. Actions are those of the CSV (allocation_lines.hpp). Throws Broken for what is no snapshot, and for an event
// that is broken, with its place.
[[nodiscard]] AllocationTrace read_snapshot(const PlainValues& values, std::optional<std::size_t> device);

}  // namespace cuvmm::traces
