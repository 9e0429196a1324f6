// The JSON for programs. Fields may be added; none changes its meaning without another number in "schema".
#include <nlohmann/json.hpp>

#include "replay/findings.hpp"

namespace cuvmm::replay {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 1;

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json json_of(const driver::CallCounts& calls) {
  Json json = Json::object();
  for (const auto& [entry, count] : calls.called()) json[std::string(driver::info(entry).name)] = count;
  return json;
}

Json json_of(const Played& played, bool emulated) {
  Json first = nullptr;
  if (const auto& refused = played.first_refused; refused)
    first = {{"event", refused->event},
             {"bytes", refused->bytes},
             {"live_bytes", refused->live},
             {"physical_bytes", refused->physical}};
  return {{"name", played.name},
          {"description", played.description},
          {"peak_physical_bytes", played.peak_physical},
          {"peak_live_bytes", played.peak_live},
          {"ratio", played.ratio()},
          {"allocations", played.allocations},
          {"frees", played.frees},
          {"refused", played.refused},
          {"first_refused", first},
          {"driver_calls", played.calls.total()},
          {"driver_calls_by_name", json_of(played.calls)},
          {"milliseconds", emulated ? Json(nullptr) : Json(played.milliseconds)}};
}

Json json_of(const Fit& fit) {
  return {{"chunk_bytes", fit.chunk_bytes},
          {"chunks", fit.chunks},
          {"fits", fit.fits},
          {"physical_bytes", fit.physical_bytes()},
          {"rounding_bytes", fit.rounding_bytes},
          {"driver_calls", fit.calls.total()},
          {"packed_bytes", or_null(fit.packed_bytes)},
          {"packed_chunks", or_null(fit.packed_chunks())}};
}

}  // namespace

std::string as_json(const Findings& findings) {
  Json allocators = Json::array();
  for (const Played& each : findings.played) allocators.push_back(json_of(each, findings.emulated));
  const Json json{{"schema", schema},
                  {"driver", findings.driver},
                  {"device", findings.device},
                  {"emulated", findings.emulated},
                  {"remark", findings.remark},
                  {"trace",
                   {{"name", findings.trace},
                    {"format", findings.allocations.format},
                    {"allocations", findings.allocations.allocations.size()},
                    {"frees", findings.frees()},
                    {"streams", findings.allocations.streams},
                    {"peak_live_bytes", findings.most_live.bytes},
                    {"remarks", findings.allocations.remarks}}},
                  {"scale", findings.scale},
                  {"limit_bytes", or_null(findings.limit_bytes)},
                  {"allocators", allocators},
                  {"fit", findings.fit ? json_of(*findings.fit) : Json(nullptr)}};
  // Names of files need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cuvmm::replay
