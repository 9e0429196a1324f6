// The pages for people.
#include <fmt/format.h>

#include <algorithm>

#include "command/words.hpp"
#include "conformance/sequences/sequence_findings.hpp"

namespace cuvmm::conformance {
namespace {

using command::with_separators;

constexpr std::size_t most_differences_shown = 40;

std::string differences(const SequenceFindings& findings) {
  std::string text;
  std::size_t shown = 0;
  for (const SequenceComparison& each : findings.sequences) {
    if (each.verdict != Verdict::different) continue;
    if (++shown > most_differences_shown) continue;
    text += fmt::format("  seed {}, step {}: {}\n    recorded  {}\n    answered  {}\n", each.seed, each.step, each.call,
                        each.recorded, each.answered);
  }
  if (text.empty()) return text;
  if (shown > most_differences_shown) text += fmt::format("  and {} more\n", shown - most_differences_shown);
  return fmt::format("Different, at the first step that is:\n{}\n", text);
}

std::string timed_out(const SequenceFindings& findings) {
  std::string text;
  for (const SequenceComparison& each : findings.sequences)
    if (each.verdict == Verdict::timed_out)
      text += fmt::format("  seed {}, step {}: {}\n", each.seed, each.step, each.call);
  if (text.empty()) return text;
  return fmt::format("Timed out in this call, and killed after {} s (--time-limit):\n{}\n", findings.time_limit.count(),
                     text);
}

std::string codes(const CallStatistics& calls) {
  std::vector<std::pair<CUresult, std::size_t>> sorted(calls.codes.begin(), calls.codes.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& left, const auto& right) { return left.second > right.second; });
  std::string text;
  for (const auto& [code, number] : sorted)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", result_name(code), with_separators(number));
  return text;
}

}  // namespace

std::string as_page(const SequenceFindings& findings) {
  std::size_t steps = 0;
  for (const SequenceComparison& each : findings.sequences) steps += each.steps;
  const std::size_t different = findings.count(Verdict::different);
  const std::size_t unrecorded = findings.count(Verdict::not_recorded);
  const std::size_t timed = findings.count(Verdict::timed_out);
  std::string text =
      heading(findings.subject) + differences(findings) + timed_out(findings) +
      fmt::format("{} sequences of {} calls in all: {} equal, ", with_separators(findings.sequences.size()),
                  with_separators(steps), with_separators(findings.count(Verdict::equal)));
  if (unrecorded != 0) text += fmt::format("{} not recorded, ", with_separators(unrecorded));
  if (timed != 0) text += fmt::format("{} TIMED OUT, ", with_separators(timed));
  return text + (different == 0 ? "none different.\n" : fmt::format("{} DIFFERENT.\n", with_separators(different)));
}

std::string as_page(const SequenceStatistics& statistics) {
  const std::vector<std::size_t>& lengths = statistics.lengths;
  const std::size_t steps = statistics.steps();
  std::string text = fmt::format("Recorded on: {}\n\n{:<42}{:>9}  answers\n", statistics.machine, "call", "times");
  for (const auto& [name, calls] : statistics.calls)
    text += fmt::format("{:<42}{:>9}  {}\n", name, with_separators(calls.calls), codes(calls));
  if (lengths.empty()) return text + "\nNo sequences.\n";
  const double mean = static_cast<double>(steps) / static_cast<double>(lengths.size());
  return text + fmt::format(
                    "\n{} sequences of {} calls in all: {:.1f} on average, {} at the median, {} to {}; {} ended "
                    "early.\n",
                    with_separators(lengths.size()), with_separators(steps), mean, lengths[lengths.size() / 2],
                    lengths.front(), lengths.back(), with_separators(statistics.ended_early));
}

}  // namespace cuvmm::conformance
