// Fields of the lines of a trace.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cuvmm::traces {

// Somebody else's text for a message: no longer than that, and with nothing that a terminal obeys.
[[nodiscard]] std::string in_quotes(std::string_view text, std::size_t most = 40);

// Without blanks, tabs and carriage returns at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text);

// What stands between the commas, trimmed.
[[nodiscard]] std::vector<std::string_view> fields_of(std::string_view line);

// The whole field as a decimal number, or a hexadecimal one where it begins with 0x; nothing if it is none or does not
// fit.
[[nodiscard]] std::optional<std::uint64_t> number_in(std::string_view field);

// "2023-11-16 18:17:03.9799600", with any number of digits behind the point, or none, and perhaps "+00:00".
[[nodiscard]] std::optional<std::chrono::microseconds> time_in(std::string_view text);

// "18:17:03.979960", or with ":979960" behind the seconds: since midnight.
[[nodiscard]] std::optional<std::chrono::microseconds> time_of_day_in(std::string_view text);

// Calls read(line) for each line that is not blank, trimmed. What that throws as Broken is thrown again as TraceError,
// with the line's number.
void for_each_line(std::string_view text, const std::string& name, const std::function<void(std::string_view)>& read);

}  // namespace cuvmm::traces
