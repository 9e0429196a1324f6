#include "tour/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "command/words.hpp"

namespace cuvmm::tour {
namespace {

std::uint64_t total_calls(const StopReport& stop) {
  return std::accumulate(stop.calls.begin(), stop.calls.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& entry) { return sum + entry.second; });
}

using Row = std::array<std::string, 6>;

Row row_of(const StopReport& stop) {
  return {stop.id,
          stop.name,
          command::with_separators(stop.bytes),
          command::with_separators(total_calls(stop)),
          readable_seconds(stop.seconds),
          std::string(name(stop.status))};
}

std::string line_of(const Row& row, const std::array<std::size_t, 6>& widths) {
  // Words to the left, numbers to the right.
  return fmt::format("{:<{}}  {:<{}}  {:>{}}  {:>{}}  {:>{}}  {}\n", row[0], widths[0], row[1], widths[1], row[2],
                     widths[2], row[3], widths[3], row[4], widths[4], row[5]);
}

constexpr std::size_t terminal_width = 80;

// The text in lines that fit on a terminal, each begun by `indent` blanks, and by two more from the second on.
std::string beneath(std::size_t indent, const std::string& text) {
  std::istringstream words(text);
  std::string lines, line;
  for (std::string word; words >> word;) {
    const std::size_t margin = indent + (lines.empty() ? 0 : 2);
    if (!line.empty() && margin + line.size() + 1 + word.size() > terminal_width) {
      lines += fmt::format("{:{}}{}\n", "", margin, line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return lines + fmt::format("{:{}}{}\n", "", indent + (lines.empty() ? 0 : 2), line);
}

// What was shown, why the stop did not pass, and what it left out without saying why where it tells what it showed.
std::string told_of(const StopReport& stop, std::size_t indent) {
  std::string text = beneath(indent, stop.shown);
  if (!stop.reason.empty()) text += beneath(indent, fmt::format("{}: {}", name(stop.status), stop.reason));
  for (const Check& check : stop.checks)
    if (!check.left_out.empty() && stop.shown.find(check.left_out) == std::string::npos)
      text += beneath(indent, fmt::format("left out: {}: {}", check.statement, check.left_out));
  return text;
}

nlohmann::ordered_json json_of(const Check& check) {
  if (check.left_out.empty()) return {{"statement", check.statement}, {"passed", check.passed}};
  return {{"statement", check.statement}, {"passed", nullptr}, {"left_out", check.left_out}};
}

nlohmann::ordered_json json_of(const StopReport& stop) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Check& check : stop.checks) checks.push_back(json_of(check));
  nlohmann::ordered_json calls = nlohmann::ordered_json::object();
  for (const auto& [entry_point, count] : stop.calls) calls[entry_point] = count;
  return {{"id", stop.id},         {"name", stop.name},   {"status", name(stop.status)},
          {"reason", stop.reason}, {"bytes", stop.bytes}, {"seconds", stop.seconds},
          {"calls", calls},        {"checks", checks}};
}

}  // namespace

std::string_view name(Status status) noexcept {
  switch (status) {
    case Status::passed:
      return "passed";
    case Status::failed:
      return "failed";
    case Status::unavailable:
      return "unavailable";
  }
  return "unknown";
}

bool any_failed(const Report& report) noexcept {
  return std::any_of(report.stops.begin(), report.stops.end(),
                     [](const StopReport& stop) { return stop.status == Status::failed; });
}

std::string as_table(const Report& report) {
  std::vector<Row> rows{{"Section", "Shown", "Bytes", "Calls", "Time", "Result"}};
  for (const StopReport& stop : report.stops) rows.push_back(row_of(stop));
  std::array<std::size_t, 6> widths{};
  for (const Row& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text = line_of(rows[0], widths);
  std::array<std::size_t, 3> counts{};
  for (std::size_t index = 0; index < report.stops.size(); ++index) {
    const StopReport& stop = report.stops[index];
    text += line_of(rows[index + 1], widths);
    text += told_of(stop, widths[0] + 2);
    ++counts[static_cast<std::size_t>(stop.status)];
  }
  return text + fmt::format("\n{} passed, {} failed, {} unavailable.\n", counts[0], counts[1], counts[2]);
}

std::string as_json(const Report& report) {
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const DeviceReport& device : report.devices) {
    devices.push_back({{"ordinal", device.ordinal}, {"name", device.name}, {"memory_bytes", device.memory_bytes}});
  }
  nlohmann::ordered_json stops = nlohmann::ordered_json::array();
  for (const StopReport& stop : report.stops) stops.push_back(json_of(stop));
  const nlohmann::ordered_json whole{{"driver", report.driver}, {"devices", devices}, {"stops", stops}};
  // Whatever a driver calls itself or a device, the output stays JSON.
  return whole.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string readable_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.1f} s", seconds);
}

}  // namespace cuvmm::tour
