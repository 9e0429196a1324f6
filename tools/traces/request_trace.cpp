#include "traces/request_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "traces/fields.hpp"

namespace cuvmm::traces {

namespace {

using Json = nlohmann::json;
using std::chrono::microseconds;

std::uint64_t tokens_in(std::string_view field, std::string_view column) {
  const auto tokens = field.starts_with("0x") ? std::nullopt : number_in(field);
  if (!tokens || *tokens > most_tokens)
    throw Broken{
        fmt::format("{} is {}; it has to be a number of tokens from 0 to {}", column, in_quotes(field), most_tokens)};
  return *tokens;
}

// --- Columns.

class Columns {
 public:
  // Of the line that names them.
  explicit Columns(std::string_view line) : fields_(fields_of(line).size()) {
    const auto names = fields_of(line);
    const auto place = [&](std::string_view name) -> std::optional<std::size_t> {
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end()) return std::nullopt;
      return static_cast<std::size_t>(found - names.begin());
    };
    for (const auto& [time, input, output] : known) {
      const auto input_place = place(input), output_place = place(output);
      const auto time_place = time.empty() ? std::nullopt : place(time);
      if (!input_place || !output_place || (!time.empty() && !time_place)) continue;
      input_ = {input, *input_place};
      output_ = {output, *output_place};
      if (time_place) time_ = {time, *time_place};
      return;
    }
    throw Broken{fmt::format("the columns are {}; known are {}", in_quotes(line),
                             "TIMESTAMP,ContextTokens,GeneratedTokens; num_prefill_tokens,num_decode_tokens; and JSON "
                             "objects with timestamp, input_length and output_length")};
  }

  [[nodiscard]] Request read(std::string_view line) const {
    const auto fields = fields_of(line);
    if (fields.size() != fields_)
      throw Broken{fmt::format("it has {} columns, where the first line names {}", fields.size(), fields_)};
    Request request;
    request.input_tokens = tokens_in(fields[input_.place], input_.name);
    request.output_tokens = tokens_in(fields[output_.place], output_.name);
    if (time_.name.empty()) return request;
    const auto time = time_in(fields[time_.place]);
    if (!time)
      throw Broken{fmt::format("{} is {}; a time is written 2023-11-16 18:17:03.97", time_.name,
                               in_quotes(fields[time_.place]))};
    request.arrival = *time;
    return request;
  }

 private:
  struct Names {
    std::string_view time, input, output;
  };
  static constexpr std::array known{Names{"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
                                    Names{"", "num_prefill_tokens", "num_decode_tokens"}};
  struct Column {
    std::string_view name;
    std::size_t place = 0;
  };

  std::size_t fields_;
  Column time_{};
  Column input_{};
  Column output_{};
};

// --- JSON objects.

std::string shown(const Json& value) {
  return value.is_primitive() ? in_quotes(value.dump()) : std::string("an ") + value.type_name();
}

std::uint64_t tokens_of(const Json& object, const char* member) {
  const auto found = object.find(member);
  if (found == object.end()) throw Broken{fmt::format("{} is missing", member)};
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > most_tokens)
    throw Broken{
        fmt::format("{} is {}; it has to be a number of tokens from 0 to {}", member, shown(*found), most_tokens)};
  return found->get<std::uint64_t>();
}

microseconds time_of(const Json& object) {
  constexpr double most_milliseconds = 1e12;  // thirty years
  const auto found = object.find("timestamp");
  if (found == object.end()) throw Broken{"timestamp is missing"};
  const double milliseconds = found->is_number() ? found->get<double>() : -1;
  if (!(milliseconds >= 0 && milliseconds <= most_milliseconds))
    throw Broken{fmt::format("timestamp is {}; it has to be a number of milliseconds", shown(*found))};
  return microseconds(static_cast<std::int64_t>(milliseconds * 1000));
}

Request read_object(std::string_view line) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) throw Broken{fmt::format("{} is no JSON object", in_quotes(line))};
  Request request{time_of(object), tokens_of(object, "input_length"), tokens_of(object, "output_length"), {}};
  const auto blocks = object.find("hash_ids");
  if (blocks == object.end()) return request;
  if (!blocks->is_array()) throw Broken{"hash_ids is no list"};
  for (const Json& each : *blocks) {
    if (!each.is_number_unsigned())
      throw Broken{fmt::format("hash_ids has {}, which is no number of a block", shown(each))};
    request.blocks.push_back(each.get<std::uint64_t>());
  }
  return request;
}

// --- Lines.

class Reader {
 public:
  void add(std::string_view line) {
    if (columns_) {
      requests_.push_back(columns_->read(line));
    } else if (line.front() == '{' || !requests_.empty()) {
      requests_.push_back(read_object(line));
    } else {
      columns_.emplace(line);
    }
  }

  // Those of all lines; arrivals count from the first one.
  [[nodiscard]] std::vector<Request> requests() && {
    std::stable_sort(requests_.begin(), requests_.end(),
                     [](const Request& one, const Request& other) { return one.arrival < other.arrival; });
    const microseconds first = requests_.empty() ? microseconds(0) : requests_.front().arrival;
    for (Request& each : requests_) each.arrival -= first;
    return std::move(requests_);
  }

 private:
  std::optional<Columns> columns_;  // none where lines are objects
  std::vector<Request> requests_;
};

}  // namespace

TraceError::TraceError(const std::string& name, std::size_t line, const std::string& what)
    : std::runtime_error(fmt::format("{}{}: {}.", in_quotes(name, name.size()),
                                     line == 0 ? std::string() : fmt::format(", line {}", line), what)),
      line_(line) {}

std::vector<Request> read_requests(std::istream& stream, const std::string& name) {
  Reader reader;
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line); ++number) {
    const std::string_view text = trimmed(line);
    if (text.empty()) continue;
    try {
      reader.add(text);
    } catch (const Broken& broken) {
      throw TraceError(name, number, broken.what());
    }
  }
  if (stream.bad()) throw TraceError(name, 0, "it cannot be read to its end");
  auto requests = std::move(reader).requests();
  if (requests.empty()) throw TraceError(name, 0, "it has no requests");
  return requests;
}

std::vector<Request> read_request_file(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) throw TraceError(path, 0, fmt::format("it cannot be opened ({})", std::strerror(errno)));
  return read_requests(stream, path);
}

}  // namespace cuvmm::traces
