// The page for people.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "command/words.hpp"
#include "conformance/findings.hpp"

namespace cuvmm::conformance {
namespace {

using command::with_separators;

struct Column {
  Verdict verdict;
  const char* title;
};

constexpr Column columns[] = {{Verdict::equal, "equal"},
                              {Verdict::different, "different"},
                              {Verdict::timed_out, "timed out"},
                              {Verdict::crash_refused, "crash refused"},
                              {Verdict::on_purpose, "on purpose"},
                              {Verdict::not_recorded, "not recorded"},
                              {Verdict::unavailable, "unavailable"}};

std::string row(std::string_view label, const std::vector<Comparison>& cases) {
  std::string text = fmt::format("{:<18}{:>7}", label, with_separators(cases.size()));
  for (const Column& column : columns)
    text +=
        fmt::format("{:>{}}", with_separators(count(cases, column.verdict)), std::string_view{column.title}.size() + 2);
  return text + '\n';
}

std::string table(const std::vector<Comparison>& cases) {
  std::string text = fmt::format("{:<18}{:>7}", "group", "cases");
  for (const Column& column : columns) text += fmt::format("  {}", column.title);
  text += '\n';
  std::vector<std::pair<std::string, std::vector<Comparison>>> groups;  // in the order of their first cases
  for (const Comparison& each : cases) {
    const std::string name = group_of(each.id);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& one) { return one.first == name; });
    if (group == groups.end()) group = groups.insert(groups.end(), {name, {}});
    group->second.push_back(each);
  }
  for (const auto& [name, members] : groups) text += row(name, members);
  return text + row("all", cases);
}

std::string details(const std::vector<Comparison>& cases, Verdict verdict, std::string_view title) {
  std::string text;
  for (const Comparison& each : cases) {
    if (each.verdict != verdict) continue;
    if (text.empty()) text = fmt::format("\n{}:\n", title);
    text += fmt::format("  {}\n    recorded  {}\n    answered  {}\n", each.id, each.recorded, each.answer);
    if (!each.reason.empty()) text += fmt::format("    why       {}\n", each.reason);
  }
  return text;
}

std::string timed_out(const Findings& findings) {
  std::string text;
  for (const Comparison& each : findings.cases)
    if (each.verdict == Verdict::timed_out) text += fmt::format("  {}\n    recorded  {}\n", each.id, each.recorded);
  if (text.empty()) return text;
  return fmt::format("\nTimed out, and killed after {} s (--time-limit):\n", findings.time_limit.count()) + text;
}

std::string unavailable(const std::vector<Comparison>& cases) {
  std::map<std::string, std::size_t> reasons;
  for (const Comparison& each : cases)
    if (each.verdict == Verdict::unavailable) ++reasons[each.reason];
  std::string text;
  for (const auto& [reason, number] : reasons)
    text += fmt::format("{}Unavailable: {} ({} cases)\n", text.empty() ? "\n" : "", reason, with_separators(number));
  return text;
}

std::string closing_line(const std::vector<Comparison>& cases) {
  const std::size_t different = count(cases, Verdict::different);
  const std::size_t timed_out = count(cases, Verdict::timed_out);
  std::string text = fmt::format("\n{} cases: ", with_separators(cases.size()));
  for (const Column& column : columns)
    if (const std::size_t number = count(cases, column.verdict);
        number != 0 && column.verdict != Verdict::different && column.verdict != Verdict::timed_out)
      text += fmt::format("{} {}, ", with_separators(number), column.title);
  if (timed_out != 0) text += fmt::format("{} TIMED OUT, ", with_separators(timed_out));
  return text + (different == 0 ? "none different.\n" : fmt::format("{} DIFFERENT.\n", with_separators(different)));
}

}  // namespace

std::size_t count(const std::vector<Comparison>& cases, Verdict verdict) {
  return static_cast<std::size_t>(
      std::count_if(cases.begin(), cases.end(), [&](const Comparison& each) { return each.verdict == verdict; }));
}

std::string group_of(const std::string& id) {
  return id.substr(0, id.find('.'));
}

std::string heading(const Subject& subject) {
  return fmt::format("{}{}Driver: {}\nDevices: {}, device 0 an {}\nCompared with: {} (profile {})\n\n", subject.remark,
                     subject.remark.empty() ? "" : "\n", subject.driver, subject.devices, subject.device,
                     subject.machine, subject.profile);
}

std::string as_page(const Findings& findings) {
  const std::vector<Comparison>& cases = findings.cases;
  return heading(findings.subject) + table(cases) + details(cases, Verdict::different, "Different") +
         timed_out(findings) +
         details(cases, Verdict::crash_refused, "The recorded driver crashed, and the emulated one refuses") +
         details(cases, Verdict::on_purpose, "Different on purpose") + unavailable(cases) + closing_line(cases);
}

}  // namespace cuvmm::conformance
