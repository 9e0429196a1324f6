// The table of settings, and what turns their values from text.
#include "emulator/configuration_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <utility>

#include "emulator/model/rights.hpp"
#include "emulator/rule.hpp"

namespace cuvmm::emulator {
namespace {

constexpr const char* size_values = "a number of bytes, such as 8GiB, 2048MiB or 0x80000000";
constexpr const char* machine_values =
    "a name of at most 100 letters, digits, '-', '_' and '.', the first of which is no '.', an absolute path, or "
    "private: "
    "then it is the process's own";
constexpr const char* switch_values = "true or false; the name alone means true";

template <class Number>
std::optional<Number> parse_number(std::string_view text, int base = 10) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  if (text.starts_with("0x")) return parse_number<std::uint64_t>(text.substr(2), 16);
  int shift = 0;
  for (const auto& [unit, bits] : {std::pair<std::string_view, int>{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}})
    if (text.ends_with(unit)) {
      shift = bits;
      text.remove_suffix(unit.size());
      break;
    }
  const auto number = parse_number<std::uint64_t>(text);
  if (!number || *number > ~std::uint64_t{0} >> shift) return std::nullopt;
  return *number << shift;
}

// "0-1": a pair of devices.
std::optional<std::pair<int, int>> parse_pair(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_number<int>(text.substr(0, dash));
  const auto second = parse_number<int>(text.substr(dash + 1));
  if (!first || !second || *first < 0 || *second < 0) return std::nullopt;
  return std::pair(*first, *second);
}

// "3:not-ready:2": two binds of device 3 fail; without the last part, all.
std::optional<MulticastFailure> parse_multicast_failure(std::string_view text) {
  MulticastFailure failure;
  const std::size_t first = text.find(':');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = text.find(':', first + 1);
  const auto device = parse_number<int>(text.substr(0, first));
  const std::string_view kind = text.substr(first + 1, second == std::string_view::npos ? second : second - first - 1);
  const auto times = second == std::string_view::npos ? std::optional(0) : parse_number<int>(text.substr(second + 1));
  if (!device || *device < 0 || !times || *times < (second == std::string_view::npos ? 0 : 1)) return std::nullopt;
  if (kind == "not-ready")
    failure.kind = MulticastFailure::Kind::not_ready;
  else if (kind == "illegal-state")
    failure.kind = MulticastFailure::Kind::illegal_state;
  else if (kind == "out-of-memory")
    failure.kind = MulticastFailure::Kind::out_of_memory;
  else
    return std::nullopt;
  failure.device = *device;
  failure.times = *times;
  return failure;
}

// Puts a parsed value where it belongs; false if there is none.
template <class Target, class Value>
bool put(Target& target, std::optional<Value> value) {
  if (!value) return false;
  target = std::move(*value);
  return true;
}

bool put_number(int& target, std::string_view text, int least, int most) {
  const auto number = parse_number<int>(text);
  return number && *number >= least && *number <= most && put(target, number);
}

// A name that can be that of a directory, or an absolute path.
bool is_machine(std::string_view text) {
  if (text.starts_with('/')) return text.size() > 1 && text.find('\0') == std::string_view::npos;
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !text.empty() && text.size() <= 100 && text.front() != '.' &&
         text.find_first_not_of(allowed) == std::string_view::npos;
}

// One of two words.
template <class Value>
bool choose(Value& target, std::string_view text, std::pair<std::string_view, Value> one,
            std::pair<std::string_view, Value> other) {
  if (text != one.first && text != other.first) return false;
  target = text == one.first ? one.second : other.second;
  return true;
}

Setting behaviour(std::string name, std::string meaning, bool Behaviour::*member) {
  return {std::move(name), switch_values, std::move(meaning),
          [member](Configuration& configuration, std::string_view text) {
            return choose(configuration.profile.behaviour.*member, text, {"true", true}, {"false", false});
          }};
}

std::vector<Setting> make_settings() {
  return {
      {"profile", fmt::format("{}", fmt::join(profile_names(), ", ")), "the kind of machine",
       [](Configuration& c, std::string_view text) { return put(c.profile, find_profile(text)); }},
      {"mode", "faithful or strict", "whether calls that a real driver wrongly accepts are accepted or refused",
       [](Configuration& c, std::string_view text) {
         return choose(c.mode, text, {"faithful", Mode::faithful}, {"strict", Mode::strict});
       }},
      {"devices", fmt::format("a whole number from 1 to {}", model::max_devices), "how many devices there are",
       [](Configuration& c, std::string_view text) {
         const auto number = parse_number<int>(text);
         return number && *number >= 1 && *number <= model::max_devices && put(c.devices, number);
       }},
      {"memory", size_values,
       "each device's memory, of which the driver keeps 526.8 MiB for itself; the profile's unless given",
       [](Configuration& c, std::string_view text) { return put(c.device_memory, parse_size(text)); }},
      {"address-base", size_values, "the first device address, a multiple of 2 MiB",
       [](Configuration& c, std::string_view text) { return put(c.address_base, parse_size(text)); }},
      {"address-bytes", size_values, "how many device addresses there are, a multiple of 2 MiB",
       [](Configuration& c, std::string_view text) { return put(c.address_bytes, parse_size(text)); }},
      {"descriptor-limit", "a whole number", "how many exported descriptors may be open at once",
       [](Configuration& c, std::string_view text) {
         return put(c.descriptor_limit, parse_number<std::size_t>(text));
       }},
      {"peers", "all or none", "whether devices can reach each other's memory",
       [](Configuration& c, std::string_view text) {
         return choose(c.peer_access, text, {"all", true}, {"none", false});
       }},
      {"no-peer", "two devices, such as 0-1; may be given several times", "a pair that cannot reach each other",
       [](Configuration& c, std::string_view text) {
         const auto pair = parse_pair(text);
         if (pair) c.no_peer_access.push_back(*pair);
         return pair.has_value();
       },
       true},
      {"machine", machine_values, "the machine that the process shares with others that name it",
       [](Configuration& c, std::string_view text) {
         if (!is_machine(text)) return false;
         c.machine = text == private_machine ? std::string() : std::string(text);
         return true;
       }},
      {"nodes", fmt::format("a whole number from 1 to {}", most_nodes), "how many nodes the machine has",
       [](Configuration& c, std::string_view text) { return put_number(c.nodes, text, 1, most_nodes); }},
      {"node", "a whole number, below that of the nodes", "on which node this process is",
       [](Configuration& c, std::string_view text) { return put_number(c.node, text, 0, most_nodes - 1); }},
      {"imex-channels", fmt::format("a whole number from 0 to {}", most_imex_channels),
       "how many IMEX channels there are, for fabric handles; the profile's unless given",
       [](Configuration& c, std::string_view text) {
         int channels = 0;
         return put_number(channels, text, 0, most_imex_channels) && put(c.imex_channels, std::optional(channels));
       }},
      {"broker-patience", fmt::format("a whole number of seconds from 1 to {}", most_broker_patience),
       "how long the process waits for the broker of a shared machine",
       [](Configuration& c, std::string_view text) {
         return put_number(c.broker_patience, text, 1, most_broker_patience);
       }},
      {"multicast-slots", fmt::format("a whole number from 0 to {}", most_multicast_slots),
       "of how many multicast objects with memory bound each device can be a part at once; the profile's unless given",
       [](Configuration& c, std::string_view text) {
         int slots = 0;
         return put_number(slots, text, 0, most_multicast_slots) && put(c.multicast_slots, std::optional(slots));
       }},
      {"multicast-wait", fmt::format("a whole number of milliseconds from 1 to {}", most_multicast_wait),
       "how long a call waits for the devices of a multicast object",
       [](Configuration& c, std::string_view text) {
         return put_number(c.multicast_wait, text, 1, most_multicast_wait);
       }},
      {"multicast-bind-fails",
       "a device, one of not-ready, illegal-state and out-of-memory, and, unless all fail, how many, such as "
       "3:not-ready:2; may be given several times",
       "binds of that device's memory to multicast objects by this process fail",
       [](Configuration& c, std::string_view text) {
         const auto failure = parse_multicast_failure(text);
         if (failure) c.multicast_failures.push_back(*failure);
         return failure.has_value();
       },
       true},
      {"scheduler", "threaded or stepped", "whether work runs on threads or advances by steps in a repeatable order",
       [](Configuration& c, std::string_view text) {
         return choose(c.scheduler, text, {"threaded", Scheduler::threaded}, {"stepped", Scheduler::stepped});
       }},
      {"seed", "a whole number", "which order the stepped scheduler takes",
       [](Configuration& c, std::string_view text) { return put(c.seed, parse_number<std::uint64_t>(text)); }},
      {"rule-off", "the id of a rule of docs/rules.md; may be given several times",
       "breaking that rule alone is answered with success, to show that a test notices",
       [](Configuration& c, std::string_view text) {
         if (!find_rule(text)) return false;
         c.rules_off.emplace_back(text);
         return true;
       },
       true},
      {"explain", switch_values,
       "each refusal is told on standard error: the call, its answer, the rule and the way out",
       [](Configuration& c, std::string_view text) {
         return choose(c.explain, text, {"true", true}, {"false", false});
       }},
      behaviour("ignore-address-hints", "cuMemAddressReserve never honours a hint", &Behaviour::ignore_address_hints),
      behaviour("withhold-compression", "compression is asked for and silently not given",
                &Behaviour::withhold_compression),
      behaviour("withhold-rdma", "GPUDirect RDMA is asked for and silently not given", &Behaviour::withhold_rdma),
      behaviour("set-access-fails-on-rdma-memory", "cuMemSetAccess answers UNKNOWN on memory made with the RDMA flag",
                &Behaviour::fail_set_access_on_rdma_memory),
      behaviour("set-access-fails", "cuMemSetAccess answers UNKNOWN always", &Behaviour::fail_set_access),
      behaviour("fabric-creation-out-of-memory", "creating memory with a fabric handle answers OUT_OF_MEMORY",
                &Behaviour::fabric_creation_out_of_memory),
      behaviour("crash-on-dead-handles", "a handle that is none ends the process by SIGSEGV where the real driver does",
                &Behaviour::crash_on_dead_handles),
  };
}

// For messages, which quote no novels.
std::string shortened(const std::string& text) {
  constexpr std::size_t most = 100;
  return text.size() > most ? text.substr(0, most) + "..." : text;
}

void set(Configuration& configuration, const GivenSetting& given) {
  for (const Setting& setting : settings()) {
    if (setting.name != given.name) continue;
    if (setting.set(configuration, given.value)) return;
    throw std::invalid_argument(fmt::format("emulated driver: {} is '{}' (from {}); it may be: {}", given.name,
                                            shortened(given.value), given.source, setting.values));
  }
  std::vector<std::string> names;
  for (const Setting& setting : settings()) names.push_back(setting.name);
  throw std::invalid_argument(
      fmt::format("emulated driver: there is no setting '{}' (from {}, value '{}'); there are: {}",
                  shortened(given.name), given.source, shortened(given.value), fmt::join(names, ", ")));
}

}  // namespace

std::string machine_wide_value(const Configuration& configuration, std::string_view setting) {
  if (setting == "profile") return configuration.profile.name;
  if (setting == "devices") return std::to_string(configuration.devices);
  if (setting == "memory") return std::to_string(configuration.memory_per_device());
  if (setting == "nodes") return std::to_string(configuration.nodes);
  if (setting == "multicast-slots") return std::to_string(configuration.multicast_slot_count());
  return std::to_string(configuration.imex_channel_count());
}

std::string machine_settings(const Configuration& configuration) {
  std::vector<std::string> settings;
  for (const std::string_view name : machine_wide_settings)
    settings.push_back(fmt::format("{}={}", name, machine_wide_value(configuration, name)));
  return fmt::format("{}", fmt::join(settings, ","));
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = make_settings();
  return all;
}

Configuration configuration_of(const std::vector<GivenSetting>& given, int least_devices) {
  Configuration configuration;
  // The profile brings behaviours of its own, which the other settings change.
  for (const GivenSetting& one : given)
    if (one.name == "profile") set(configuration, one);
  std::vector<std::string> sources;
  for (const GivenSetting& one : given) {
    if (one.name != "profile") set(configuration, one);
    if (one.source != machine_variable && (sources.empty() || sources.back() != one.source))
      sources.push_back(one.source);
  }
  if (sources.empty()) sources.emplace_back(machine_variable);
  configuration.devices = std::max(configuration.devices, least_devices);
  for (const std::string_view name : machine_wide_settings)
    if (std::none_of(given.begin(), given.end(), [&](const GivenSetting& one) { return one.name == name; }))
      configuration.left_open.emplace_back(name);
  try {
    configuration.validate();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{} (from {})", error.what(), fmt::join(sources, " and ")));
  }
  return configuration;
}

}  // namespace cuvmm::emulator
