#include "cuvmm/capabilities.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "capability_trials.hpp"
#include "driver/call.hpp"
#include "driver/convert.hpp"
#include "driver/emulation.hpp"
#include "driver/multicast_switch.hpp"
#include "feature_facts.hpp"

namespace cuvmm {

using namespace abi;
using driver::EntryPoint;
using driver::try_call;

namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Why a call failed, in a sentence without an end.
std::string why(const Failure& failure) {
  if (!failure.reason.empty()) return failure.reason;
  std::string text = fmt::format("{} answered {}", failure.call, failure.code_name);
  if (!failure.rule.empty()) text += ": " + failure.rule;
  return text;
}

// Whether the failure says something of the feature. A lack of memory, addresses or descriptors, or a broken device, is
// none of its business.
bool concerns_the_feature(const Failure& failure) noexcept {
  switch (failure.kind) {
    case ErrorKind::out_of_device_memory:
    case ErrorKind::out_of_host_memory:
    case ErrorKind::out_of_address_space:
    case ErrorKind::out_of_descriptors:
    case ErrorKind::device_lost:
    case ErrorKind::driver_unavailable:
    case ErrorKind::timed_out:
      return false;
    default:
      return true;
  }
}

// "channel12" -> 12.
std::optional<int> channel_number(std::string_view name) {
  constexpr std::string_view prefix = "channel";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return number;
}

// One device's questions and trials.
class Inquiry {
 public:
  Inquiry(const Device& device, const CapabilityOptions& options)
      : device_(device),
        options_(options),
        interface_(device.driver().interface()),
        version_(device.driver().version()) {}

  Capabilities all() {
    report_.device = device_.ordinal();
    ask_host_numa_node();
    for (const Feature feature : all_features()) report_[feature] = announced(facts_of(feature));
    note_multicast(report_[Feature::multicast]);
    note_imex_channels(report_[Feature::fabric_handles]);
    note_imex_channels(report_[Feature::host_numa_multinode_ipc]);
    ask_granularities();
    ask_peers();
    if (options_.trials) make_trials();
    return std::move(report_);
  }

 private:
  void ask_host_numa_node() {
    constexpr int since = 12020;
    int node = -1;
    if (version_ >= since && try_call<EntryPoint::cuDeviceGetAttribute>(
                                 interface_, &node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device_.handle()))
      report_.host_numa_node = node;
  }

  // What the attribute says. An attribute that the driver is too old for is not asked: that call would fail.
  Capability announced(const FeatureFacts& facts) {
    Capability capability;
    if (facts.since == 0 || version_ < facts.since) {
      capability.reason = facts.since == 0
                              ? "No attribute of the driver tells; only a trial does"
                              : fmt::format("The driver is of CUDA {}; that it tells of this came with CUDA {}",
                                            version_text(version_), version_text(facts.since));
      capability.remedy = CapabilityTrials::exists(facts.feature) ? "Ask for trials" : "Install a newer driver";
      return capability;
    }
    int value = 0;
    const auto asked =
        try_call<EntryPoint::cuDeviceGetAttribute>(interface_, &value, facts.attribute, device_.handle());
    if (!asked) {
      capability.reason = why(asked.failure());
      capability.remedy = asked.failure().way_out;
      return capability;
    }
    capability.attribute = value;
    capability.state = value != 0 ? FeatureState::yes : FeatureState::no;
    if (value == 0) {
      capability.reason = facts.why_not;
      capability.remedy = facts.remedy;
    }
    return capability;
  }

  void note_multicast(Capability& multicast) {
    if (std::string off = driver::why_multicast_is_off(); !off.empty()) {
      multicast.state = FeatureState::no;
      multicast.reason = std::move(off);
      multicast.remedy = "Remove the switch where multicast is wanted";
    } else if (!interface_.has(EntryPoint::cuMulticastCreate)) {
      multicast.state = FeatureState::no;
      multicast.reason = "The driver has no multicast entry points, which came with CUDA 12.1";
      multicast.remedy = "Install a newer driver";
    } else if (multicast.state == FeatureState::yes) {
      multicast.reason =
          "Not tried: a multicast object takes one of the few places in the switch between the devices, and belongs to "
          "the program that uses it";
    }
  }

  // The attribute also says yes where no channel is, without which the driver refuses.
  void note_imex_channels(Capability& capability) {
    if (capability.state != FeatureState::yes || driver::is_emulation(interface_) || has_imex_channel()) return;
    capability.state = FeatureState::unknown;
    capability.reason = why_no_channel();
    capability.remedy = channel_remedy();
  }

  [[nodiscard]] bool has_imex_channel() const {
    const auto channels = imex_channels(options_.imex_directory);
    return std::any_of(channels.begin(), channels.end(), [](const ImexChannel& each) { return each.accessible; });
  }

  [[nodiscard]] std::string why_no_channel() const {
    return fmt::format("Fabric handles need an IMEX channel that this process may use, and {}",
                       imex_channels(options_.imex_directory).empty()
                           ? fmt::format("there is none in {}", options_.imex_directory)
                           : fmt::format("it may open none of those in {}", options_.imex_directory));
  }

  [[nodiscard]] std::string channel_remedy() const {
    return fmt::format(
        "Have {0}/channel0 created (option NVreg_CreateImexChannel0=1 of the kernel module nvidia) and made accessible "
        "to this process, in a container by passing that file on; or use POSIX file descriptor handles",
        options_.imex_directory);
  }

  void ask_granularity(const MemoryProperties& properties) {
    const CUmemAllocationProp converted = driver::to_abi(properties);
    MemoryGranularity answer{properties};
    if (try_call<EntryPoint::cuMemGetAllocationGranularity>(interface_, &answer.minimum, &converted,
                                                            CU_MEM_ALLOC_GRANULARITY_MINIMUM) &&
        try_call<EntryPoint::cuMemGetAllocationGranularity>(interface_, &answer.recommended, &converted,
                                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
      report_.granularities.push_back(answer);
  }

  [[nodiscard]] bool says_yes(Feature feature) const { return report_[feature].attribute.value_or(0) != 0; }

  void ask_granularities() {
    if (!says_yes(Feature::virtual_memory_management)) return;
    const Location here = device_.location();
    ask_granularity({.location = here});
    if (says_yes(Feature::posix_file_descriptor_handles))
      ask_granularity({.location = here, .handle_types = HandleType::posix_file_descriptor});
    if (says_yes(Feature::fabric_handles)) ask_granularity({.location = here, .handle_types = HandleType::fabric});
    if (says_yes(Feature::compression)) ask_granularity({.location = here, .compression = true});
    if (says_yes(Feature::gpu_direct_rdma)) ask_granularity({.location = here, .gpu_direct_rdma = true});
    if (says_yes(Feature::host_memory)) ask_granularity({.location = Location::host()});
    if (says_yes(Feature::host_numa_memory) && report_.host_numa_node >= 0)
      ask_granularity({.location = Location::host_numa(report_.host_numa_node)});
  }

  void ask_peers() {
    const int count = device_.driver().device_count();
    for (int ordinal = 0; ordinal < count; ++ordinal) report_.peers.push_back(peer(ordinal));
  }

  [[nodiscard]] FeatureState peer(int ordinal) const {
    if (ordinal == device_.ordinal().value) return FeatureState::yes;
    int handle = 0;
    int can = 0;
    if (!try_call<EntryPoint::cuDeviceGet>(interface_, &handle, ordinal) ||
        !try_call<EntryPoint::cuDeviceCanAccessPeer>(interface_, &can, device_.handle(), handle))
      return FeatureState::unknown;
    return can != 0 ? FeatureState::yes : FeatureState::no;
  }

  void make_trials() {
    if (report_[Feature::virtual_memory_management].state == FeatureState::no) return;
    const CapabilityTrials trials(device_, report_.host_numa_node);
    for (const Feature feature : all_features())
      if (CapabilityTrials::exists(feature) && report_[feature].state != FeatureState::no)
        judge(report_[feature], facts_of(feature), trials.run(feature));
    report_.largest_reservation_bytes = trials.largest_reservation();
  }

  void judge(Capability& capability, const FeatureFacts& facts, const Result<void>& tried) {
    const bool was_announced = capability.attribute.value_or(0) != 0;
    if (tried) {
      capability.state = FeatureState::yes;
      capability.trial = TrialResult::worked;
      capability.reason.clear();
      capability.remedy.clear();
    } else if (!concerns_the_feature(tried.failure())) {
      capability.state = FeatureState::unknown;
      capability.trial = TrialResult::inconclusive;
      capability.reason = fmt::format("The trial could not be made to its end: {}: {}", to_string(tried.failure().kind),
                                      why(tried.failure()));
      capability.remedy = tried.failure().way_out;
    } else {
      capability.state = was_announced ? FeatureState::refused : FeatureState::no;
      capability.trial = TrialResult::failed;
      explain_refusal(capability, facts, tried.failure());
    }
  }

  void explain_refusal(Capability& capability, const FeatureFacts& facts, const Failure& failure) const {
    const bool by_fabric =
        facts.feature == Feature::fabric_handles || facts.feature == Feature::host_numa_multinode_ipc;
    capability.reason = why(failure);
    capability.remedy = facts.remedy_refused;
    if (by_fabric && failure.kind == ErrorKind::not_permitted && driver::is_emulation(interface_)) {
      capability.remedy = failure.way_out;  // the channels of this system are no matter, but those of the machine
    } else if (by_fabric && failure.kind == ErrorKind::not_permitted && !has_imex_channel()) {
      capability.reason = fmt::format("{} answered {}: {}", failure.call, failure.code_name, why_no_channel());
      capability.remedy = channel_remedy();
    }
    if (facts.feature == Feature::host_numa_memory)
      capability.reason = fmt::format("NUMA node {} of the host: {}", report_.host_numa_node, capability.reason);
  }

  const Device& device_;
  const CapabilityOptions& options_;
  driver::Interface& interface_;
  int version_;
  Capabilities report_;
};

}  // namespace

std::array<Feature, feature_count> all_features() noexcept {
  std::array<Feature, feature_count> all{};
  for (std::size_t index = 0; index < feature_count; ++index) all[index] = static_cast<Feature>(index);
  return all;
}

std::string_view identifier(Feature feature) noexcept {
  return facts_of(feature).identifier;
}

std::string_view to_string(Feature feature) noexcept {
  return facts_of(feature).name;
}

std::string_view to_string(FeatureState state) noexcept {
  switch (state) {
    case FeatureState::no:
      return "no";
    case FeatureState::yes:
      return "yes";
    case FeatureState::refused:
      return "advertised but refused";
    case FeatureState::unknown:
      return "unknown";
  }
  return "unknown";
}

std::string_view to_string(TrialResult result) noexcept {
  switch (result) {
    case TrialResult::not_made:
      return "not made";
    case TrialResult::worked:
      return "worked";
    case TrialResult::failed:
      return "failed";
    case TrialResult::inconclusive:
      return "inconclusive";
  }
  return "inconclusive";
}

std::vector<ImexChannel> imex_channels(const std::string& directory) {
  std::vector<ImexChannel> channels;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto number = channel_number(entry->path().filename().native());
    if (!number) continue;
    const std::string path = entry->path().native();
    channels.push_back({*number, path, ::access(path.c_str(), R_OK | W_OK) == 0});
  }
  std::sort(channels.begin(), channels.end(),
            [](const ImexChannel& a, const ImexChannel& b) { return a.number < b.number; });
  return channels;
}

std::vector<MulticastSwitch> multicast_switches() {
  std::vector<MulticastSwitch> switches;
  for (driver::SwitchSetting& each : driver::multicast_switches_found())
    switches.push_back({std::move(each.variable), std::move(each.value), each.off});
  return switches;
}

Capabilities Capabilities::of(const Device& device, const CapabilityOptions& options) {
  return Inquiry(device, options).all();
}

}  // namespace cuvmm
