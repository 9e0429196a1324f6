#include "emulator/configuration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <stdexcept>
#include <string>

#include "emulator/configuration_settings.hpp"
#include "emulator/model/rights.hpp"
#include "emulator/rule.hpp"

namespace cuvmm::emulator {

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool thread_sanitizer = true;
#elif defined(__has_feature)
constexpr bool thread_sanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool thread_sanitizer = false;
#endif

// Arenas have offsets for twice as much, host memory and the gaps in it included.
constexpr std::uint64_t most_memory = std::uint64_t{1} << 48;

// "8 bytes", "528.8 MiB", "256 TiB".
std::string in_words(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  constexpr const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  for (; amount >= 1024 && unit + 1 < std::size(units); ++unit) amount /= 1024;
  const std::string number = fmt::format("{:.1f}", amount);
  return fmt::format("{} {}", number.ends_with(".0") ? number.substr(0, number.size() - 2) : number, units[unit]);
}

}  // namespace

Configuration::Configuration()
    : profile(*find_profile("h200-580")),
      address_base(thread_sanitizer ? std::uint64_t{64} << 30 : 0x1100'0000'0000),
      address_bytes(thread_sanitizer ? std::uint64_t{448} << 30 : 0x4300'0000'0000) {}

int Profile::attribute(int attribute) const {
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? 0 : found->second;
}

void Configuration::validate() const {
  const auto refuse = [](const std::string& text) { throw std::invalid_argument("emulated driver: " + text); };
  const std::uint64_t granule = profile.granularity;
  if (granule == 0 || (granule & (granule - 1)) != 0 || granule % (std::uint64_t{2} << 20) != 0)
    refuse(fmt::format("profile.granularity is {}; it must be a power of two of at least 2 MiB", granule));
  if (devices < 1 || devices > model::max_devices)
    refuse(fmt::format("devices is {}; there can be 1 to {}", devices, model::max_devices));
  if (const std::uint64_t least = profile.device_memory_reserved + granule; memory_per_device() < least)
    refuse(
        fmt::format("memory is {}; each device needs {} at least, most of which the driver keeps for itself: give "
                    "more, with a unit, such as 8GiB",
                    in_words(memory_per_device()), in_words(least)));
  if (address_base == 0 || address_base % granule != 0 || address_bytes % granule != 0 || address_bytes < granule)
    refuse(fmt::format(
        "address-base (address_base) {:#x} and address-bytes (address_bytes) {:#x} must be non-zero multiples of {}",
        address_base, address_bytes, granule));
  if (address_base + address_bytes < address_base || address_base + address_bytes > std::uint64_t{1} << 62)
    refuse(fmt::format(
        "address-base (address_base) {:#x} and address-bytes (address_bytes) {:#x} must end at 2^62 at most",
        address_base, address_bytes));
  if (memory_per_device() > most_memory)
    refuse(fmt::format("memory is {}; a device can have {} at most: give less", in_words(memory_per_device()),
                       in_words(most_memory)));
  if (profile.host_memory > most_memory)
    refuse(fmt::format("profile.host_memory is {}; the host can have {} at most", in_words(profile.host_memory),
                       in_words(most_memory)));
  if (nodes < 1 || nodes > most_nodes || node < 0 || node >= nodes)
    refuse(
        fmt::format("node is {} and nodes is {}; there can be 1 to {} nodes, numbered from 0: take a node below their "
                    "number (node), "
                    "or more of them (the setting nodes, cuvmm emulate --nodes)",
                    node, nodes, most_nodes));
  if (broker_patience < 1 || broker_patience > most_broker_patience)
    refuse(fmt::format("broker-patience (broker_patience) is {} seconds; it can be 1 to {}", broker_patience,
                       most_broker_patience));
  if (machine.empty() && nodes > 1)
    refuse(fmt::format("nodes is {}; a machine that is the process's own has one: name a machine", nodes));
  if (imex_channel_count() < 0 || imex_channel_count() > most_imex_channels)
    refuse(fmt::format("imex-channels (imex_channels) is {}; there can be 0 to {}", imex_channel_count(),
                       most_imex_channels));
  if (multicast_slot_count() < 0 || multicast_slot_count() > most_multicast_slots)
    refuse(fmt::format("multicast-slots (multicast_slots) is {}; there can be 0 to {}", multicast_slot_count(),
                       most_multicast_slots));
  if (multicast_wait < 1 || multicast_wait > most_multicast_wait)
    refuse(fmt::format("multicast-wait (multicast_wait) is {} milliseconds; it can be 1 to {}", multicast_wait,
                       most_multicast_wait));
  if (profile.attribute(abi::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) != 0 &&
      (!std::has_single_bit(profile.multicast_granularity) || profile.multicast_granularity % granule != 0 ||
       !std::has_single_bit(profile.multicast_recommended) ||
       profile.multicast_recommended < profile.multicast_granularity))
    refuse(
        fmt::format("profile.multicast_granularity is {} and profile.multicast_recommended {}; both must be powers "
                    "of two, multiples of {}, the second no smaller than the first",
                    profile.multicast_granularity, profile.multicast_recommended, granule));
  for (const MulticastFailure& failure : multicast_failures)
    if (failure.device < 0 || failure.device >= devices || failure.times < 0)
      refuse(fmt::format("multicast-bind-fails (multicast_failures) names device {} and {} times; there are {} devices",
                         failure.device, failure.times, devices));
  for (const HostKernel& kernel : kernels)
    if (kernel.name.empty() || !kernel.views || bool(kernel.run) == bool(kernel.run_block))
      refuse(fmt::format("the host kernel '{}' must have a name, a views function, and a run or a run_block function",
                         kernel.name));
  for (const HostKernel& kernel : kernels)
    if (std::find(kernel.argument_bytes.begin(), kernel.argument_bytes.end(), 0) != kernel.argument_bytes.end())
      refuse(fmt::format("the host kernel '{}' declares an argument of 0 bytes; each has at least 1", kernel.name));
  for (const std::string& id : rules_off)
    if (!find_rule(id))
      refuse(fmt::format("rule-off (rules_off) names the rule '{}', which there is not; `cuvmm rules` lists them", id));
  for (const auto& [device, peer] : no_peer_access)
    if (std::min(device, peer) < 0 || std::max(device, peer) >= devices || device == peer)
      refuse(fmt::format("no-peer (no_peer_access) has the pair ({}, {}); both must be different devices below {}",
                         device, peer, devices));
}

bool Configuration::is_off(std::string_view rule) const noexcept {
  return std::find(rules_off.begin(), rules_off.end(), rule) != rules_off.end();
}

bool Configuration::can_access_peer(int device, int peer) const {
  if (device == peer) return true;
  if (!peer_access) return false;
  return std::none_of(no_peer_access.begin(), no_peer_access.end(), [&](const auto& pair) {
    return pair == std::pair(device, peer) || pair == std::pair(peer, device);
  });
}

}  // namespace cuvmm::emulator
