#include "traces/fields.hpp"

#include <algorithm>
#include <charconv>

#include "traces/trace_error.hpp"

namespace cuvmm::traces {

namespace {

using std::chrono::microseconds;

// Takes so many digits and what follows them.
std::optional<int> take_digits(std::string_view& text, std::size_t count, std::string_view follows) {
  int value = 0;
  if (text.size() < count + follows.size() || text.substr(count, follows.size()) != follows) return std::nullopt;
  for (const char each : text.substr(0, count)) {
    if (each < '0' || each > '9') return std::nullopt;
    value = 10 * value + (each - '0');
  }
  text.remove_prefix(count + follows.size());
  return value;
}

// What is behind the seconds: ".9799600" or nothing.
std::optional<microseconds> fraction_in(std::string_view text) {
  if (text.empty()) return microseconds(0);
  if (text.front() != '.' || text.size() == 1) return std::nullopt;
  std::int64_t value = 0;
  std::int64_t unit = 100'000;
  for (const char each : text.substr(1)) {
    if (each < '0' || each > '9') return std::nullopt;
    value += unit * (each - '0');
    unit /= 10;
  }
  return microseconds(value);
}

// "18:17:03", and leaves what follows.
std::optional<microseconds> take_clock(std::string_view& text) {
  const auto hours = take_digits(text, 2, ":");
  const auto minutes = hours ? take_digits(text, 2, ":") : std::nullopt;
  const auto seconds = minutes ? take_digits(text, 2, "") : std::nullopt;
  if (!seconds || *hours > 23 || *minutes > 59 || *seconds > 60) return std::nullopt;
  return std::chrono::hours(*hours) + std::chrono::minutes(*minutes) + std::chrono::seconds(*seconds);
}

}  // namespace

std::string in_quotes(std::string_view text, std::size_t most) {
  std::string shown(text.substr(0, most));
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char each) { return each < 0x20 || each == 0x7F; }, '?');
  return "'" + shown + (text.size() > most ? "...'" : "'");
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char each) { return each == ' ' || each == '\t' || each == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    fields.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

std::optional<std::uint64_t> number_in(std::string_view field) {
  const bool hexadecimal = field.starts_with("0x");
  if (hexadecimal) field.remove_prefix(2);
  std::uint64_t number = 0;
  const char* const end = field.data() + field.size();
  const auto [stopped, error] = std::from_chars(field.data(), end, number, hexadecimal ? 16 : 10);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

std::optional<microseconds> time_in(std::string_view text) {
  const auto year = take_digits(text, 4, "-");
  const auto month = year ? take_digits(text, 2, "-") : std::nullopt;
  const auto day = month ? take_digits(text, 2, " ") : std::nullopt;
  const auto clock = day ? take_clock(text) : std::nullopt;
  constexpr std::string_view universal = "+00:00";
  if (text.ends_with(universal)) text.remove_suffix(universal.size());
  const auto fraction = clock ? fraction_in(text) : std::nullopt;
  if (!fraction) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch() + *clock + *fraction;
}

std::optional<microseconds> time_of_day_in(std::string_view text) {
  const auto clock = take_clock(text);
  if (!clock) return std::nullopt;
  std::string behind(text);
  if (behind.starts_with(':')) behind.front() = '.';
  const auto fraction = fraction_in(behind);
  if (!fraction) return std::nullopt;
  return *clock + *fraction;
}

void for_each_line(std::string_view text, const std::string& name, const std::function<void(std::string_view)>& read) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    try {
      read(line);
    } catch (const Broken& broken) {
      throw TraceError(name, number, broken.what());
    }
  }
}

}  // namespace cuvmm::traces
