#include "conformance/conformance.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>

#include "command/input_error.hpp"
#include "command/output.hpp"
#include "command/text_file.hpp"
#include "command/words.hpp"
#include "conformance/answers.hpp"
#include "conformance/case_command.hpp"
#include "conformance/sequences/sequences.hpp"
#include "conformance/subject.hpp"

namespace cuvmm::conformance {
namespace {

constexpr unsigned default_time_limit = 120;  // seconds of a case; it ends what hangs, on slow machines too

std::vector<Case> cases_that_match(const std::string& text) {
  const Table table = all_cases();
  std::vector<Case> cases;
  for (const Case& each : table.cases())
    if (each.id.find(text) != std::string::npos) cases.push_back(each);
  if (cases.empty())
    throw command::InputError(fmt::format("No case has {} in its name: take a part of a name, such as map. or capture.",
                                          command::quoted(text)));
  return cases;
}

// Every n-th of the cases.
std::vector<Case> part(const Shard& shard, const std::vector<Case>& cases) {
  std::vector<Case> chosen;
  for (std::size_t index = shard.number - 1; index < cases.size(); index += shard.of) chosen.push_back(cases[index]);
  if (chosen.empty())
    throw command::InputError(
        fmt::format("Shard {}/{} of {} cases is empty: take a lower number.", shard.number, shard.of, cases.size()));
  return chosen;
}

std::optional<std::string> answer_in(const Answers& answers, const std::string& id) {
  const auto found = answers.find(id);
  return found == answers.end() ? std::nullopt : std::optional(found->second);
}

Abilities abilities_of(const Subject& subject) {
  return {subject.devices, subject.emulated, subject.stepped};
}

void record(const std::string& path, const std::vector<Case>& cases, const Answers& answers) {
  std::string text;
  for (const Case& each : cases)
    if (const auto answer = answer_in(answers, each.id)) text += each.id + '\t' + *answer + '\n';
  command::write_file(path, text);
}

// Asks what can be asked, several at a time; the answers by id. They are recorded as they come, in pieces, so that not
// all is lost if this process is ended.
Answers ask(const std::vector<Case>& cases, const ChosenSubject& chosen, const PoolOptions& pool,
            const std::optional<std::string>& recorded_to) {
  constexpr std::size_t piece = 50;
  std::vector<Case> askable;
  for (const Case& each : cases)
    if (!why_unavailable(each, abilities_of(chosen.subject))) askable.push_back(each);
  Answers answers;
  run_cases(askable, started_anew(chosen.process), pool, [&](const Case& each, const std::string& answer) {
    answers[each.id] = answer;
    if (recorded_to && answers.size() % piece == 0) record(*recorded_to, cases, answers);
  });
  if (recorded_to) record(*recorded_to, cases, answers);
  return answers;
}

std::vector<Comparison> compare_all(const std::vector<Case>& cases, const Answers& answers,
                                    const ChosenSubject& chosen) {
  const Answers recorded = recorded_answers(chosen.recordings->profile).value();
  std::vector<Comparison> comparisons;
  comparisons.reserve(cases.size());
  for (const Case& each : cases) {
    const auto before = answer_in(recorded, each.id);
    if (const auto answer = answer_in(answers, each.id))
      comparisons.push_back(compare(each.id, before, *answer, chosen.subject.emulated));
    else
      comparisons.push_back({each.id, Verdict::unavailable, before.value_or(""), "",
                             why_unavailable(each, abilities_of(chosen.subject)).value()});
  }
  return comparisons;
}

int run_table(const Options& options) {
  const ChosenSubject chosen = choose_subject(options);
  const std::vector<Case> cases = part(options.shard, cases_that_match(options.match.value_or("")));
  if (options.record) command::check_writable(*options.record);
  const std::chrono::seconds time_limit{options.time_limit.value_or(default_time_limit)};
  const Answers answers = ask(cases, chosen, {time_limit, options.jobs}, options.record);
  const Findings findings{chosen.subject, compare_all(cases, answers, chosen), time_limit};
  command::write_out(options.json ? as_json(findings) : as_page(findings));
  const bool all_well =
      count(findings.cases, Verdict::different) == 0 && count(findings.cases, Verdict::timed_out) == 0;
  return all_well ? 0 : 1;
}

}  // namespace

int run_conformance(const Options& options) {
  constexpr int misuse = 2;
  try {
    return options.sequences ? run_sequences(options) : run_table(options);
  } catch (const std::exception& error) {
    std::fputs(fmt::format("cuvmm conformance: {}\n", error.what()).c_str(), stderr);
    return misuse;
  }
}

}  // namespace cuvmm::conformance
