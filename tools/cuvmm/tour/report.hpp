// What a tour found, and how it is shown: as a table for people, as JSON for programs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tour/checks.hpp"

namespace cuvmm::tour {

enum class Status { passed, failed, unavailable };

[[nodiscard]] std::string_view name(Status status) noexcept;

struct StopReport {
  std::string id;    // the guide's section: "4.16.2"
  std::string name;  // its subject
  std::string shown;
  Status status = Status::passed;
  std::string reason;       // why it failed or is unavailable, else empty
  std::uint64_t bytes = 0;  // of the input, that went through the feature
  double seconds = 0;
  std::map<std::string, std::uint64_t> calls;  // of this process, by the entry point's name
  std::vector<Check> checks;
};

struct DeviceReport {
  int ordinal = 0;
  std::string name;
  std::uint64_t memory_bytes = 0;
};

struct Report {
  std::string driver;
  std::vector<DeviceReport> devices;
  std::vector<StopReport> stops;
};

[[nodiscard]] bool any_failed(const Report& report) noexcept;

// The table: a line for each stop, and beneath it, in lines of at most 80 columns where words allow that, what was
// shown, why it did not pass and what was left out. Ends with a line that counts.
[[nodiscard]] std::string as_table(const Report& report);

// {"driver": ..., "devices": [...], "stops": [...]}, indented, one line end at its end. docs/tour.md tells the fields.
[[nodiscard]] std::string as_json(const Report& report);

// Three digits or so, with a unit: "12.3 ms".
[[nodiscard]] std::string readable_seconds(double seconds);

}  // namespace cuvmm::tour
