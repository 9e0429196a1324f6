#include "traces/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "traces/allocation_lines.hpp"
#include "traces/fields.hpp"
#include "traces/json_values.hpp"
#include "traces/memory_snapshot.hpp"
#include "traces/pickle.hpp"

namespace cuvmm::traces {

namespace {

// The first line that is not blank.
std::string_view first_line_of(std::string_view content) {
  while (!content.empty()) {
    const std::size_t end = content.find('\n');
    if (const std::string_view line = trimmed(content.substr(0, end)); !line.empty()) return line;
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  }
  return {};
}

// A byte-order mark, which some editors write, says nothing of a trace.
std::string_view without_mark(std::string_view content) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (content.starts_with(mark)) content.remove_prefix(mark.size());
  return content;
}

// Of a list or an object, as protocols 0 and 1 begin, which name themselves nowhere.
bool is_old_pickle(std::string_view content) {
  constexpr std::array<std::string_view, 4> beginnings{"(lp", "(dp", "]q", "}q"};
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view each) { return content.starts_with(each); });
}

bool names_request_columns(std::string_view line) {
  return line.find("ContextTokens") != std::string_view::npos ||
         line.find("num_prefill_tokens") != std::string_view::npos;
}

}  // namespace

WorkloadKind kind_of_workload(std::string_view content, const std::string& name) {
  content = without_mark(content);
  const std::string_view line = first_line_of(content);
  if (line.empty()) throw TraceError(name, 0, "it is empty");
  if (content.starts_with('\x80')) return WorkloadKind::pickle;
  if (is_old_pickle(content))
    throw TraceError(name, 0, "it is a pickle of protocol 0 or 1: save it with one of 2 to 5, which are read");
  for (const std::string_view compressed : {"\x1F\x8B", "PK\x03\x04", "\x28\xB5\x2F\xFD"})
    if (content.starts_with(compressed))
      throw TraceError(name, 0, "it is compressed: unpack it, and name what that gives");
  if (line.starts_with('{') || line.starts_with('[')) {
    constexpr std::size_t beginning = 1 << 16;
    const bool request = line.substr(0, beginning).find("\"input_length\"") != std::string_view::npos;
    return request ? WorkloadKind::requests : WorkloadKind::json;
  }
  if (names_allocation_columns(line)) return WorkloadKind::allocations;
  if (names_request_columns(line)) return WorkloadKind::requests;
  throw TraceError(name, 0,
                   fmt::format("it begins with {}; known are CSV with the columns action,addr_offset,size,stream "
                               "(PyTorch), Action,Pointer,Size,Stream (RMM), lower,upper,size (MiniMalloc), "
                               "TIMESTAMP,ContextTokens,GeneratedTokens (Azure) or num_prefill_tokens,"
                               "num_decode_tokens, JSON objects with timestamp, input_length and output_length "
                               "(Mooncake), and PyTorch's memory snapshot as a pickle or as JSON",
                               in_quotes(line)));
}

AllocationTrace read_workload(std::string_view content, const std::string& name, const WorkloadSettings& settings) {
  content = without_mark(content);
  const WorkloadKind kind = kind_of_workload(content, name);
  try {
    switch (kind) {
      case WorkloadKind::allocations:
        return read_allocation_lines(content, name);
      case WorkloadKind::pickle:
        return read_snapshot(read_pickle(content), settings.device);
      case WorkloadKind::json:
        return read_snapshot(read_json(content), settings.device);
      case WorkloadKind::requests:
        break;
    }
    std::istringstream stream{std::string(content)};
    return served_allocations(read_requests(stream, name), settings.serving);
  } catch (const Broken& broken) {
    throw TraceError(name, 0, broken.what());
  }
}

}  // namespace cuvmm::traces
