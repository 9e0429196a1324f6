// The JSON for programs. Fields may be added; none changes its meaning without another number in "schema".
#include <nlohmann/json.hpp>

#include "bench/report.hpp"
#include "bench/unit_names.hpp"

namespace cuvmm::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 1;

Json estimate(const Estimate& each) {
  return {{"value", each.value}, {"low", each.low}, {"high", each.high}};
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class Amount>
Json list(const Way& way, Amount amount) {
  Json values = Json::array();
  for (const Cost& each : way.costs) values.push_back(amount(each));
  return values;
}

Json json_of(const Way& way, bool counts) {
  Json facts = Json::array();
  for (const Fact& each : way.facts)
    facts.push_back({{"name", each.name}, {"value", each.value}, {"unit", name_of(each.unit)}});
  Json json{{"name", way.name}, {"facts", facts}};
  if (counts) {
    json["driver_calls"] = list(way, [](const Cost& each) { return each.driver_calls; });
    json["allocations"] = list(way, [](const Cost& each) { return each.allocations; });
    json["instructions"] = list(way, [](const Cost& each) { return or_null(each.instructions); });
  } else {
    json["median_ms"] = estimate(milliseconds_of(way));
    json["milliseconds"] = list(way, [](const Cost& each) { return each.milliseconds; });
  }
  return json;
}

Json json_of(const Report& report, bool counts) {
  Json ways = Json::array();
  for (const Way& each : report.ways)
    if (!each.costs.empty()) ways.push_back(json_of(each, counts));
  Json ratios = Json::array();
  for (const Compared& each : compared(report, counts))
    ratios.push_back({{"of", each.ratio.of},
                      {"to", each.ratio.to},
                      {"quantity", counts                ? "driver_calls"
                                   : each.ratio.of_speed ? "speed"
                                                         : "time"},
                      {"ratio", estimate(each.value)},
                      {"goal", or_null(each.ratio.goal)},
                      {"met", or_null(each.met)}});
  Json limits = Json::array();
  for (const Limited& each : limited(report, counts))
    limits.push_back({{"way", each.limit.way},
                      {"per", each.limit.per},
                      {"milliseconds", estimate(each.value)},
                      {"goal", each.limit.milliseconds},
                      {"met", or_null(each.met)}});
  return {{"name", report.name}, {"title", report.title}, {"settings", report.settings}, {"ways", ways},
          {"ratios", ratios},    {"limits", limits},      {"notes", report.notes},       {"left_out", report.left_out}};
}

}  // namespace

std::string as_json(const Findings& findings) {
  Json reports = Json::array();
  for (const Report& each : findings.reports) reports.push_back(json_of(each, findings.counts));
  const Json json{{"schema", schema},          {"driver", findings.driver},
                  {"device", findings.device}, {"emulated", findings.counts},
                  {"remark", findings.remark}, {"why_no_instructions", findings.why_no_instructions},
                  {"reports", reports}};
  return json.dump(2) + "\n";
}

}  // namespace cuvmm::bench
