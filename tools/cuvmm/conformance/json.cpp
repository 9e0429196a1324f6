// The JSON for programs. Fields may be added; none changes its meaning without another number in "schema".
#include <nlohmann/json.hpp>

#include "conformance/findings.hpp"

namespace cuvmm::conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 1;

const char* identifier(Verdict verdict) {
  switch (verdict) {
    case Verdict::equal:
      return "equal";
    case Verdict::different:
      return "different";
    case Verdict::timed_out:
      return "timed_out";
    case Verdict::crash_refused:
      return "crash_refused";
    case Verdict::on_purpose:
      return "on_purpose";
    case Verdict::not_recorded:
      return "not_recorded";
    case Verdict::unavailable:
      break;
  }
  return "unavailable";
}

Json counts(const std::vector<Comparison>& cases) {
  Json numbers{{"cases", cases.size()}};
  for (const Verdict each : {Verdict::equal, Verdict::different, Verdict::timed_out, Verdict::crash_refused,
                             Verdict::on_purpose, Verdict::not_recorded, Verdict::unavailable})
    numbers[identifier(each)] = count(cases, each);
  return numbers;
}

}  // namespace

std::string as_json(const Findings& findings) {
  const Subject& subject = findings.subject;
  Json cases = Json::array();
  for (const Comparison& each : findings.cases)
    cases.push_back({{"id", each.id},
                     {"group", group_of(each.id)},
                     {"verdict", identifier(each.verdict)},
                     {"recorded", each.recorded},
                     {"answer", each.answer},
                     {"reason", each.reason}});
  const Json whole{{"schema", schema},
                   {"driver",
                    {{"description", subject.driver},
                     {"emulated", subject.emulated},
                     {"remark", subject.remark},
                     {"devices", subject.devices},
                     {"device", subject.device}}},
                   {"profile", subject.profile},
                   {"machine", subject.machine},
                   {"counts", counts(findings.cases)},
                   {"cases", cases}};
  // Whatever a driver answers, the output stays JSON.
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cuvmm::conformance
