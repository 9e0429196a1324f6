#include "traces/allocation_trace.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace cuvmm::traces {

MostLive most_live(const AllocationTrace& trace) {
  MostLive most;
  std::uint64_t live = 0;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const AllocationEvent& event = trace.events[i];
    const std::uint64_t bytes = trace.allocations[event.allocation].bytes;
    live = event.frees ? live - bytes : live + bytes;
    if (live > most.bytes) most = {live, i};
  }
  return most;
}

void scale_sizes(AllocationTrace& trace, std::uint64_t factor) {
  for (const Allocation& each : trace.allocations)
    if (each.bytes > most_allocation_bytes / factor)
      throw Broken(fmt::format("an allocation of {} bytes is too large to be scaled by {}; {} bytes are the most",
                               each.bytes, factor, most_allocation_bytes));
  for (Allocation& each : trace.allocations) each.bytes *= factor;
}

std::string as_history(const AllocationTrace& trace) {
  std::string text = "seq,time_us,action,addr_offset,size,stream\n";
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const AllocationEvent& event = trace.events[i];
    const Allocation& allocation = trace.allocations[event.allocation];
    text += fmt::format("{},{},{},{},{},{}\n", i, event.time.count(), event.frees ? "free_completed" : "alloc",
                        event.allocation, allocation.bytes, allocation.stream);
  }
  return text;
}

std::uint32_t AllocationRecorder::number_of_stream(std::uint64_t stream) {
  const auto [found, added] = streams_.try_emplace(stream, static_cast<std::uint32_t>(streams_.size()));
  if (added && streams_.size() > most_streams)
    throw Broken(fmt::format("it is of one more stream than the {} that a trace may have", most_streams));
  return found->second;
}

void AllocationRecorder::allocate(std::uint64_t address, std::uint64_t bytes, std::uint64_t stream,
                                  std::chrono::microseconds time) {
  if (bytes > most_allocation_bytes)
    throw Broken(
        fmt::format("{} bytes are more than the {} that an allocation may have", bytes, most_allocation_bytes));
  if (bytes == 0) return pass_over("allocations of no bytes");
  const auto number = static_cast<std::uint32_t>(trace_.allocations.size());
  if (number == UINT32_MAX) throw Broken("it is of one more allocation than a trace may have");
  if (!live_.try_emplace(address, number).second)
    throw Broken(fmt::format("the address {:#x} is allocated already, and was not freed since", address));
  trace_.allocations.push_back({bytes, number_of_stream(stream)});
  trace_.events.push_back({time, number, false});
}

void AllocationRecorder::free(std::uint64_t address, std::chrono::microseconds time) {
  const auto found = live_.find(address);
  if (found == live_.end()) return pass_over("frees of what was not allocated in the trace");
  trace_.events.push_back({time, found->second, true});
  live_.erase(found);
}

void AllocationRecorder::pass_over(std::string_view kind) {
  const auto found =
      std::find_if(passed_over_.begin(), passed_over_.end(), [&](const auto& each) { return each.first == kind; });
  if (found != passed_over_.end()) {
    ++found->second;
  } else {
    passed_over_.emplace_back(kind, 1);
  }
}

AllocationTrace AllocationRecorder::finish(std::string format) && {
  if (trace_.allocations.empty()) throw Broken("it has no allocations");
  trace_.format = std::move(format);
  trace_.streams = static_cast<std::uint32_t>(streams_.size());
  for (const auto& [kind, count] : passed_over_)
    trace_.remarks.push_back(fmt::format("{} passed over: {}", kind, count));
  return std::move(trace_);
}

}  // namespace cuvmm::traces
