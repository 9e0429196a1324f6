// Requests to a language model, as public traces of serving systems list them.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "traces/trace_error.hpp"

namespace cuvmm::traces {

struct Request {
  std::chrono::microseconds arrival{};  // since the trace's first one; 0 where the trace has no times
  std::uint64_t input_tokens = 0;       // of the prompt
  std::uint64_t output_tokens = 0;      // that were generated
  std::vector<std::uint64_t> blocks{};  // numbers of the prompt's blocks, equal ones having equal content; often none
};

// The most tokens that a request may have of each kind; more is taken to be a broken line.
inline constexpr std::uint64_t most_tokens = std::uint64_t{1} << 24;

// Reads a trace, in order of arrival. The first line tells its format:
//
// - CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens, as the Azure traces have them; a time is
//   "2023-11-16 18:17:03.9799600", with any number of digits behind the point, or none, and perhaps "+00:00";
// - CSV with the columns num_prefill_tokens and num_decode_tokens, without times;
// - a JSON object a line with timestamp (milliseconds), input_length, output_length and perhaps hash_ids, as the
//   Mooncake traces have them.
//
// Columns and members may come in any order, and there may be others. Empty lines are passed over. Throws TraceError
// for any line that is broken, and for a trace without requests. `name` stands for the trace in messages.
[[nodiscard]] std::vector<Request> read_requests(std::istream& stream, const std::string& name);

// The same of a file. Throws TraceError also where it cannot be opened or read.
[[nodiscard]] std::vector<Request> read_request_file(const std::string& path);

}  // namespace cuvmm::traces
