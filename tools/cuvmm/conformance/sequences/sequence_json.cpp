// The JSON for programs. Fields may be added; none changes its meaning without another number in "schema".
#include <nlohmann/json.hpp>

#include "conformance/sequences/sequence_findings.hpp"

namespace cuvmm::conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 1;

std::string written(const Json& whole) {
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string as_json(const SequenceFindings& findings) {
  Json differences = Json::array();
  Json timed_out = Json::array();
  std::size_t steps = 0;
  for (const SequenceComparison& each : findings.sequences) {
    steps += each.steps;
    if (each.verdict == Verdict::different)
      differences.push_back({{"seed", each.seed},
                             {"step", each.step},
                             {"call", each.call},
                             {"recorded", each.recorded},
                             {"answer", each.answered}});
    if (each.verdict == Verdict::timed_out)
      timed_out.push_back({{"seed", each.seed}, {"step", each.step}, {"call", each.call}});
  }
  return written({{"schema", schema},
                  {"driver",
                   {{"description", findings.subject.driver},
                    {"emulated", findings.subject.emulated},
                    {"remark", findings.subject.remark},
                    {"devices", findings.subject.devices},
                    {"device", findings.subject.device}}},
                  {"profile", findings.subject.profile},
                  {"machine", findings.recorded_machine},
                  {"counts",
                   {{"sequences", findings.sequences.size()},
                    {"calls", steps},
                    {"equal", findings.count(Verdict::equal)},
                    {"different", findings.count(Verdict::different)},
                    {"timed_out", findings.count(Verdict::timed_out)},
                    {"not_recorded", findings.count(Verdict::not_recorded)}}},
                  {"differences", differences},
                  {"timed_out", timed_out}});
}

std::string as_json(const SequenceStatistics& statistics) {
  Json calls = Json::object();
  for (const auto& [name, each] : statistics.calls) {
    Json codes = Json::object();
    for (const auto& [code, number] : each.codes) codes[result_name(code)] = number;
    calls[name] = {{"calls", each.calls}, {"answers", codes}};
  }
  return written({{"schema", schema},
                  {"machine", statistics.machine},
                  {"sequences", statistics.lengths.size()},
                  {"calls", statistics.steps()},
                  {"lengths", statistics.lengths},
                  {"ended_early", statistics.ended_early},
                  {"by_call", calls}});
}

}  // namespace cuvmm::conformance
