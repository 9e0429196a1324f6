// The JSON for programs. Fields may be added; none changes its meaning without another number in "schema".
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "doctor/findings.hpp"

namespace cuvmm::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 1;

std::string identifier(std::string_view words) {
  std::string text(words);
  std::replace(text.begin(), text.end(), ' ', '_');
  return text;
}

std::string identifier(FeatureState state) {
  return state == FeatureState::refused ? "refused" : identifier(to_string(state));
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json feature(const Capability& capability) {
  return {{"state", identifier(capability.state)},
          {"attribute", or_null(capability.attribute)},
          {"trial", identifier(to_string(capability.trial))},
          {"reason", capability.reason},
          {"remedy", capability.remedy}};
}

Json granularity(const MemoryGranularity& each) {
  Json handle_types = Json::array();
  if (each.properties.handle_types.contains(HandleType::posix_file_descriptor))
    handle_types.push_back("posix_file_descriptor");
  if (each.properties.handle_types.contains(HandleType::fabric)) handle_types.push_back("fabric");
  return {{"location", to_string(each.properties.location)},
          {"handle_types", handle_types},
          {"compression", each.properties.compression},
          {"gpu_direct_rdma", each.properties.gpu_direct_rdma},
          {"minimum_bytes", each.minimum},
          {"recommended_bytes", each.recommended}};
}

Json device(const DeviceFindings& found) {
  const Capabilities& capabilities = found.capabilities;
  Json features = Json::object();
  for (const Feature each : all_features()) features[std::string(identifier(each))] = feature(capabilities[each]);
  Json granularities = Json::array();
  for (const MemoryGranularity& each : capabilities.granularities) granularities.push_back(granularity(each));
  Json peers = Json::array();
  for (const FeatureState peer : capabilities.peers) peers.push_back(identifier(peer));
  return {{"ordinal", capabilities.device.value},
          {"name", found.name},
          {"memory_bytes", found.memory_bytes},
          {"pci_bus_id", found.pci_bus_id},
          {"host_numa_node", capabilities.host_numa_node},
          {"features", features},
          {"granularities", granularities},
          {"largest_reservation_bytes", or_null(capabilities.largest_reservation_bytes)},
          {"peers", peers}};
}

}  // namespace

std::string as_json(const Findings& findings) {
  Json devices = Json::array();
  for (const DeviceFindings& each : findings.devices) devices.push_back(device(each));
  Json channels = Json::array();
  for (const ImexChannel& each : findings.imex_channels)
    channels.push_back({{"number", each.number}, {"path", each.path}, {"accessible", each.accessible}});
  Json switches = Json::array();
  for (const MulticastSwitch& each : findings.multicast_switches)
    switches.push_back({{"variable", each.variable}, {"value", each.value}, {"off", each.off}});
  const Json whole{{"schema", schema},
                   {"driver",
                    {{"description", findings.driver},
                     {"cuda_version", findings.cuda_version},
                     {"emulated", findings.emulated},
                     {"remark", findings.remark}}},
                   {"probed", findings.probed},
                   {"needs_action", needs_action(findings)},
                   {"devices", devices},
                   {"imex_channels", channels},
                   {"multicast_switches", switches}};
  // Whatever a driver calls itself or a device, the output stays JSON.
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cuvmm::doctor
