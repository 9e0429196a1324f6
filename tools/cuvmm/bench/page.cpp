// The report for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/report.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm::bench {
namespace {

std::string time_in_words(double milliseconds) {
  if (milliseconds >= 1000) return fmt::format("{:.2f} s", milliseconds / 1000);
  if (milliseconds >= 1) return fmt::format("{:.2f} ms", milliseconds);
  return fmt::format("{:.2f} us", milliseconds * 1000);
}

std::string fact_in_words(const Fact& fact) {
  switch (fact.unit) {
    case Unit::bytes:
      return fmt::format("{} {}", format_bytes(static_cast<std::uint64_t>(fact.value)), fact.name);
    case Unit::percent:
      return fmt::format("{:.1f} % {}", fact.value, fact.name);
    case Unit::gigabytes_a_second:
      return fmt::format("{:.1f} GB/s {}", fact.value, fact.name);
    case Unit::count:
      break;
  }
  return fmt::format("{:g} {}", fact.value, fact.name);
}

std::string facts_in_words(const Way& way) {
  std::vector<std::string> words;
  for (const Fact& each : way.facts) words.push_back(fact_in_words(each));
  return fmt::format("{}", fmt::join(words, ", "));
}

template <class Amount>
double median(const Way& way, Amount amount) {
  std::vector<double> samples;
  for (const Cost& each : way.costs) samples.push_back(static_cast<double>(amount(each)));
  return median_of(std::move(samples)).value;
}

std::string counted_line(const Way& way, std::size_t width) {
  const bool has_instructions =
      std::all_of(way.costs.begin(), way.costs.end(), [](const Cost& each) { return each.instructions.has_value(); });
  return fmt::format(
      "  {:<{}}  {:>12}  {:>11}  {:>12}  {}\n", way.name, width,
      median(way, [](const Cost& each) { return each.driver_calls; }),
      median(way, [](const Cost& each) { return each.allocations; }),
      has_instructions ? fmt::format("{}", median(way, [](const Cost& each) { return each.instructions.value_or(0); }))
                       : "-",
      facts_in_words(way));
}

std::string timed_line(const Way& way, std::size_t width) {
  const Estimate time = milliseconds_of(way);
  const std::string interval = fmt::format("({} to {})", time_in_words(time.low), time_in_words(time.high));
  return fmt::format("  {:<{}}  {:>10}  {:<26}  {}\n", way.name, width, time_in_words(time.value), interval,
                     facts_in_words(way));
}

std::string verdict(std::optional<bool> met) {
  return met ? *met ? "met" : "MISSED" : "";
}

std::string without_trailing_spaces(std::string text) {
  std::string kept;
  for (const char each : text) {
    if (each == '\n') kept.erase(kept.find_last_not_of(' ') + 1);
    kept += each;
  }
  return kept;
}

std::string ways_of(const Report& report, bool counts) {
  std::size_t width = 0;
  for (const Way& each : report.ways) width = std::max(width, each.name.size());
  std::string text = counts ? fmt::format("  {:<{}}  {:>12}  {:>11}  {:>12}\n", "", width, "driver calls",
                                          "allocations", "instructions")
                            : fmt::format("  {:<{}}  {:>10}  {}\n", "", width, "median", "(95 % interval)");
  for (const Way& each : report.ways)
    if (!each.costs.empty()) text += counts ? counted_line(each, width) : timed_line(each, width);
  return text;
}

std::string ratios_of(const Report& report, bool counts) {
  const auto list = compared(report, counts);
  std::vector<std::string> names;
  std::size_t width = 0;
  for (const Compared& each : list) {
    names.push_back(fmt::format("{} of {} / {}",
                                counts                ? "calls"
                                : each.ratio.of_speed ? "speed"
                                                      : "time",
                                each.ratio.of, each.ratio.to));
    width = std::max(width, names.back().size());
  }
  std::string text;
  for (std::size_t index = 0; index < list.size(); ++index) {
    const Compared& each = list[index];
    text += fmt::format("  {:<{}}  {:.4f} ({:.4f} to {:.4f})", names[index], width, each.value.value, each.value.low,
                        each.value.high);
    if (each.met)
      text +=
          fmt::format("  goal {} {:.4g}: {}", each.ratio.of_speed ? ">=" : "<=", *each.ratio.goal, verdict(each.met));
    text += "\n";
  }
  return text;
}

std::string limits_of(const Report& report, bool counts) {
  std::string text;
  for (const Limited& each : limited(report, counts)) {
    const std::string per = each.limit.per.empty() ? "" : " " + each.limit.per;
    text += fmt::format("  {}: {}{} ({} to {})  goal <= {}: {}\n", each.limit.way, time_in_words(each.value.value), per,
                        time_in_words(each.value.low), time_in_words(each.value.high),
                        time_in_words(each.limit.milliseconds), verdict(each.met));
  }
  return text;
}

}  // namespace

std::string heading(const Findings& findings) {
  std::string text = fmt::format("{}; {}\n", findings.driver, findings.device);
  if (!findings.remark.empty()) text += findings.remark + "\n";
  if (!findings.counts) return text;
  text +=
      "On the emulated driver times mean nothing: driver calls are counted, and what the calling thread does outside "
      "the "
      "driver.\n";
  if (!findings.why_no_instructions.empty())
    text += fmt::format("Instructions cannot be counted here: {}\n", findings.why_no_instructions);
  return text;
}

std::string as_page(const Report& report, bool counts) {
  std::string text = fmt::format("\n{}: {}\n", report.name, report.title);
  if (!report.left_out.empty()) return text + fmt::format("  left out: {}\n", report.left_out);
  if (!report.settings.empty()) text += fmt::format("  {}\n", fmt::join(report.settings, ", "));
  text += ways_of(report, counts) + ratios_of(report, counts) + limits_of(report, counts);
  for (const std::string& each : report.notes) text += fmt::format("  {}\n", each);
  return without_trailing_spaces(std::move(text));
}

}  // namespace cuvmm::bench
