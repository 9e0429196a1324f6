// The page for people.
#include <fmt/format.h>

#include <algorithm>

#include "command/imex_words.hpp"
#include "command/words.hpp"
#include "doctor/findings.hpp"

namespace cuvmm::doctor {
namespace {

constexpr std::size_t label_width = 48;  // of the longest name of a feature, and a gap

std::string line(std::string_view label, std::string_view text) {
  return fmt::format("  {:<{}}{}\n", label, label_width, text);
}

// A reason or a remedy, beneath the line of its feature.
std::string beneath(std::string_view intro, const std::string& sentence) {
  return sentence.empty() ? std::string() : fmt::format("      {}{}\n", intro, sentence);
}

bool needs_imex_channel(Feature feature) {
  return feature == Feature::fabric_handles || feature == Feature::host_numa_multinode_ipc;
}

// What is known without a trial. That fabric handles are announced says little: they need an IMEX channel, too, of
// whose absence the library knows on a real machine, and on an emulated one nothing before a trial.
std::string untried(Feature feature, const Capability& capability, bool emulated) {
  if (needs_imex_channel(feature) && capability.attribute.value_or(0) != 0) {
    if (capability.state == FeatureState::unknown) return fmt::format("announced; {}", command::no_imex_channel);
    if (capability.state == FeatureState::yes && emulated) return "announced; a trial tells of the IMEX channel";
  }
  if (capability.state == FeatureState::unknown) return "not tried";
  return std::string(to_string(capability.state));
}

std::string verdict(Feature feature, const Capability& capability, bool emulated) {
  switch (capability.trial) {
    case TrialResult::worked:
      return "yes, tried";
    case TrialResult::failed:
    case TrialResult::inconclusive:
      return std::string(to_string(capability.state));
    case TrialResult::not_made:
      break;
  }
  return untried(feature, capability, emulated);
}

std::string feature_lines(std::string_view label, const std::string& verdict, const Capability& capability) {
  return line(label, verdict) + beneath("why: ", capability.reason) + beneath("do:  ", capability.remedy);
}

// The handles of Windows last, and together if they are alike, since here nobody can have them.
std::string features(const Capabilities& capabilities, bool emulated) {
  const auto lines = [&](Feature feature, std::string_view label) {
    return feature_lines(label, verdict(feature, capabilities[feature], emulated), capabilities[feature]);
  };
  std::string text;
  for (const Feature feature : all_features())
    if (feature != Feature::win32_handles && feature != Feature::win32_kmt_handles)
      text += lines(feature, to_string(feature));
  if (capabilities[Feature::win32_handles] == capabilities[Feature::win32_kmt_handles])
    return text + lines(Feature::win32_handles, fmt::format("{}, {}", to_string(Feature::win32_handles),
                                                            to_string(Feature::win32_kmt_handles)));
  for (const Feature feature : {Feature::win32_handles, Feature::win32_kmt_handles})
    text += lines(feature, to_string(feature));
  return text;
}

std::string kind(const MemoryProperties& properties) {
  std::string text = to_string(properties.location);
  if (properties.handle_types.contains(HandleType::posix_file_descriptor)) text += ", POSIX file descriptors";
  if (properties.handle_types.contains(HandleType::fabric)) text += ", fabric handles";
  if (properties.compression) text += ", compressible";
  if (properties.gpu_direct_rdma) text += ", GPUDirect RDMA";
  return text;
}

std::string numbers(const Capabilities& capabilities) {
  std::string text;
  for (const MemoryGranularity& each : capabilities.granularities)
    text += line("granularity: " + kind(each.properties),
                 each.minimum == each.recommended
                     ? format_bytes(each.minimum)
                     : fmt::format("{}, recommended {}", format_bytes(each.minimum), format_bytes(each.recommended)));
  text += line("largest reservation of addresses", capabilities.largest_reservation_bytes
                                                       ? format_bytes(*capabilities.largest_reservation_bytes)
                                                       : std::string("not tried"));
  return text;
}

bool alike(const Capabilities& a, const Capabilities& b) {
  return a.features == b.features && a.largest_reservation_bytes == b.largest_reservation_bytes &&
         a.granularities.size() == b.granularities.size();
}

std::string device(const Findings& findings, std::size_t index) {
  const DeviceFindings& found = findings.devices[index];
  const Capabilities& capabilities = found.capabilities;
  std::string text = fmt::format("\nDevice {}: {}, {}", capabilities.device.value, found.name,
                                 command::bytes_in_words(found.memory_bytes));
  if (!found.pci_bus_id.empty()) text += fmt::format(", PCI {}", found.pci_bus_id);
  if (capabilities.host_numa_node >= 0) text += fmt::format(", nearest NUMA node {}", capabilities.host_numa_node);
  text += "\n";
  for (std::size_t earlier = 0; earlier < index; ++earlier) {
    const Capabilities& other = findings.devices[earlier].capabilities;
    if (alike(capabilities, other)) return text + fmt::format("  all as device {}\n", other.device.value);
  }
  return text + features(capabilities, findings.emulated) + numbers(capabilities);
}

std::string peer_matrix(const Findings& findings) {
  if (findings.devices.size() < 2) return {};
  std::string text = "\nPeer access: whether the device of the row can access the memory of that of the column\n     ";
  for (const DeviceFindings& each : findings.devices) text += fmt::format("{:>5}", each.capabilities.device.value);
  text += "\n";
  for (const DeviceFindings& each : findings.devices) {
    text += fmt::format("{:>5}", each.capabilities.device.value);
    for (const FeatureState peer : each.capabilities.peers)
      text += fmt::format("{:>5}", peer == FeatureState::unknown ? "?" : to_string(peer));
    text += "\n";
  }
  return text;
}

bool needs_action(Feature feature, const Capability& capability) noexcept {
  const bool missing = feature == Feature::virtual_memory_management && capability.state == FeatureState::no;
  return missing || capability.trial == TrialResult::failed || capability.trial == TrialResult::inconclusive;
}

// "device 0: fabric handles, multicast", for those that need action.
std::string needing_action(const DeviceFindings& found) {
  std::string text;
  for (const Feature feature : all_features())
    if (needs_action(feature, found.capabilities[feature]))
      text += fmt::format("{}{}", text.empty() ? "" : ", ", to_string(feature));
  return text.empty() ? text : fmt::format("  device {}: {}\n", found.capabilities.device.value, text);
}

std::string machine(const Findings& findings) {
  std::string text = findings.emulated ? "\nThis machine, not the emulated one\n" : "\nThis machine\n";
  if (findings.imex_channels.empty()) text += line("IMEX channels", fmt::format("none in {}", imex_channel_directory));
  for (const ImexChannel& each : findings.imex_channels)
    text += line(fmt::format("IMEX channel {}", each.number),
                 each.path + (each.accessible ? "" : ", which this process may not open"));
  if (findings.multicast_switches.empty()) text += line("multicast switches in the environment", "none");
  for (const MulticastSwitch& each : findings.multicast_switches)
    text +=
        line(fmt::format("{}={}", each.variable, each.value), each.off ? "turns multicast off" : "leaves multicast on");
  return text;
}

}  // namespace

bool needs_action(const Findings& findings) noexcept {
  const auto features = all_features();
  return std::any_of(findings.devices.begin(), findings.devices.end(), [&](const DeviceFindings& each) {
    return std::any_of(features.begin(), features.end(),
                       [&](Feature feature) { return needs_action(feature, each.capabilities[feature]); });
  });
}

std::string as_page(const Findings& findings) {
  std::string text;
  if (!findings.remark.empty()) text += findings.remark + "\n";
  text += fmt::format("Driver: {}\n", findings.driver);
  for (std::size_t index = 0; index < findings.devices.size(); ++index) text += device(findings, index);
  text += peer_matrix(findings);
  text += machine(findings);
  if (needs_action(findings)) {
    text +=
        "\nThe exit status is 1, since this is missing or was refused; the lines with \"do:\" above tell the way "
        "out:\n";
    for (const DeviceFindings& each : findings.devices) text += needing_action(each);
    return text;
  }
  if (findings.probed) return text + "\nEverything that was tried works.\n";
  return text + "\nNothing was tried: doctor --probe tries what the devices announce.\n";
}

}  // namespace cuvmm::doctor
