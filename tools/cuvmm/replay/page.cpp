// The table for people.
#include <fmt/format.h>

#include <algorithm>

#include "command/words.hpp"
#include "cuvmm/units.hpp"
#include "replay/findings.hpp"

namespace cuvmm::replay {
namespace {

using command::with_separators;

std::string heading(const Findings& findings) {
  std::string text = fmt::format("{}; {}\n", findings.driver, findings.device);
  if (!findings.remark.empty()) text += findings.remark + "\n";
  text += fmt::format("{}: {}\n", findings.trace, findings.allocations.format);
  text += fmt::format("{} allocations, {} frees, {} stream{}; {} live at most\n",
                      with_separators(findings.allocations.allocations.size()), with_separators(findings.frees()),
                      findings.allocations.streams, findings.allocations.streams == 1 ? "" : "s",
                      format_bytes(findings.most_live.bytes));
  for (const std::string& each : findings.allocations.remarks) text += each + "\n";
  if (findings.scale != 1) text += fmt::format("every size {} times as large as in the trace\n", findings.scale);
  if (findings.limit_bytes)
    text += fmt::format("{} of the device's memory, the rest being taken beforehand\n",
                        format_bytes(*findings.limit_bytes));
  return text;
}

std::string line_of(const Played& played, std::size_t width, bool emulated) {
  std::string line =
      fmt::format("{:<{}}  {:>16}  {:>5}  {:>12}", played.name, width, format_bytes(played.peak_physical),
                  fmt::format("{:.3f}", played.ratio()), with_separators(played.calls.total()));
  if (!emulated) {
    const double events = static_cast<double>(std::max<std::uint64_t>(played.allocations + played.frees, 1));
    line += fmt::format("  {:>10}  {:>8.2f}", fmt::format("{:.2f} ms", played.milliseconds),
                        1000 * played.milliseconds / events);
  }
  return line + fmt::format("  {:>7}\n", with_separators(played.refused));
}

std::string table_of(const Findings& findings) {
  std::size_t width = 9;
  for (const Played& each : findings.played) width = std::max(width, each.name.size());
  std::string text =
      fmt::format("\n{:<{}}  {:>16}  {:>5}  {:>12}", "allocator", width, "peak physical", "ratio", "driver calls");
  if (!findings.emulated) text += fmt::format("  {:>10}  {:>8}", "time", "us each");
  text += fmt::format("  {:>7}\n", "refused");
  for (const Played& each : findings.played) text += line_of(each, width, findings.emulated);
  for (const Played& each : findings.played) {
    if (!each.first_refused) continue;
    const Refused& first = *each.first_refused;
    text += fmt::format("{}: event {} asked for {} with {} live and {} held, and was refused\n", each.name, first.event,
                        format_bytes(first.bytes), format_bytes(first.live), format_bytes(first.physical));
  }
  text += "ratio: peak physical / peak live";
  text += findings.emulated ? "; times mean nothing on the emulated driver\n" : "\n";
  return text;
}

std::string share(std::uint64_t bytes, std::uint64_t whole) {
  return fmt::format("{:.1f} %",
                     100.0 * static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(whole, 1)));
}

std::string fit_of(const Fit& fit, const std::optional<std::uint64_t>& limit_bytes) {
  std::string text = fmt::format(
      "\nAll known beforehand: {} chunks of {} are {}, which is {} of the {} that are live at most;\n"
      "{} of them is rounding to chunks. ",
      with_separators(fit.chunks), format_bytes(fit.chunk_bytes), fit.fits ? "enough" : "needed",
      share(fit.physical_bytes(), fit.peak_live), format_bytes(fit.peak_live), format_bytes(fit.rounding_bytes));
  if (fit.fits) {
    text += fmt::format("It took {} driver calls.\n", with_separators(fit.calls.total()));
  } else {
    text += fmt::format("{} does not fit in the {}.\n", format_bytes(fit.physical_bytes()),
                        limit_bytes ? "limit of " + format_bytes(*limit_bytes) : "device's memory");
  }
  if (fit.rounding_bytes > fit.peak_live / 10)
    text += fmt::format(
        "That much is rounding because chunks are large beside such allocations; with sizes {} times as large as\n"
        "these there would be none.\n",
        with_separators(fit.exact_scale));
  if (fit.packed_bytes)
    text += fmt::format(
        "At one place for all their lives they were packed into {} ({}), the best of four greedy orders: {} chunk{}.\n",
        format_bytes(*fit.packed_bytes), share(*fit.packed_bytes, fit.peak_live), with_separators(*fit.packed_chunks()),
        fit.packed_chunks() == 1 ? "" : "s");
  return text;
}

}  // namespace

std::string as_page(const Findings& findings) {
  std::string text = heading(findings);
  text += table_of(findings);
  if (findings.fit) text += fit_of(*findings.fit, findings.limit_bytes);
  return text;
}

}  // namespace cuvmm::replay
