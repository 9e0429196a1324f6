// Allocations and frees of a program, as several tools record them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "traces/trace_error.hpp"

namespace cuvmm::traces {

struct Allocation {
  std::uint64_t bytes = 0;   // never 0
  std::uint32_t stream = 0;  // streams are numbered in the order in which they come
};

struct AllocationEvent {
  std::chrono::microseconds time{};  // as the trace counts; 0 where it has no times
  std::uint32_t allocation = 0;      // which one, of the trace's list
  bool frees = false;                // else it allocates; each allocation is allocated once, and freed at most once
};

struct AllocationTrace {
  std::string format;                     // what was read, for people
  std::vector<Allocation> allocations{};  // in the order in which they begin
  std::vector<AllocationEvent> events{};
  std::uint32_t streams = 0;           // how many there are
  std::vector<std::string> remarks{};  // what was passed over, for people
};

// The most bytes that are allocated at a time, and the event that first makes them so many.
struct MostLive {
  std::uint64_t bytes = 0;
  std::size_t event = 0;
};
[[nodiscard]] MostLive most_live(const AllocationTrace& trace);

// Every size that many times as large. Throws Broken where one becomes larger than an allocation may be.
void scale_sizes(AllocationTrace& trace, std::uint64_t factor);

// As the CSV of PyTorch's memory history, which is read again (allocation_lines.hpp); an address is the allocation's
// number.
[[nodiscard]] std::string as_history(const AllocationTrace& trace);

// More is taken to be a broken line.
inline constexpr std::uint64_t most_allocation_bytes = std::uint64_t{1} << 46;
inline constexpr std::uint32_t most_streams = 1024;

// Puts a trace together from events that name addresses.
class AllocationRecorder {
 public:
  // Throws Broken for an address that is allocated already, for too many bytes, and for too many streams. Nothing is
  // recorded of an allocation without bytes.
  void allocate(std::uint64_t address, std::uint64_t bytes, std::uint64_t stream, std::chrono::microseconds time);
  // What is not known to be allocated was so before the trace began, and is passed over.
  void free(std::uint64_t address, std::chrono::microseconds time);
  // Something else of that kind is passed over, to be told.
  void pass_over(std::string_view kind);

  // Throws Broken for a trace without allocations.
  [[nodiscard]] AllocationTrace finish(std::string format) &&;

 private:
  std::uint32_t number_of_stream(std::uint64_t stream);

  AllocationTrace trace_{};
  std::unordered_map<std::uint64_t, std::uint32_t> live_;     // by address
  std::unordered_map<std::uint64_t, std::uint32_t> streams_;  // numbers
  std::vector<std::pair<std::string, std::uint64_t>> passed_over_;
};

}  // namespace cuvmm::traces
