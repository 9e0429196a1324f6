#include "emulator/configuration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "emulator/model/rights.hpp"

namespace cuvmm::emulator {

Configuration::Configuration() : profile(*find_profile("h200-580")) {}

int Profile::attribute(int attribute) const {
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? 0 : found->second;
}

void Configuration::validate() const {
  const auto refuse = [](std::string text) { throw std::invalid_argument("emulated driver: " + text); };
  const std::uint64_t granule = profile.granularity;
  if (granule == 0 || (granule & (granule - 1)) != 0 || granule % (std::uint64_t{2} << 20) != 0)
    refuse(fmt::format("profile.granularity is {}; it must be a power of two of at least 2 MiB", granule));
  if (devices < 1 || devices > model::max_devices)
    refuse(fmt::format("devices is {}; there can be 1 to {}", devices, model::max_devices));
  if (memory_per_device() < granule || memory_per_device() < profile.device_memory_reserved + granule)
    refuse(fmt::format("device_memory is {} bytes; it must exceed the {} bytes that the driver keeps by at least {}",
                       memory_per_device(), profile.device_memory_reserved, granule));
  if (address_base == 0 || address_base % granule != 0 || address_bytes % granule != 0 || address_bytes < granule)
    refuse(fmt::format("address_base {:#x} and address_bytes {:#x} must be non-zero multiples of {}", address_base,
                       address_bytes, granule));
  for (const auto& [device, peer] : no_peer_access)
    if (std::min(device, peer) < 0 || std::max(device, peer) >= devices || device == peer)
      refuse(fmt::format("no_peer_access has the pair ({}, {}); both must be different devices below {}", device, peer,
                         devices));
}

bool Configuration::can_access_peer(int device, int peer) const {
  if (device == peer) return true;
  if (!peer_access) return false;
  return std::none_of(no_peer_access.begin(), no_peer_access.end(), [&](const auto& pair) {
    return pair == std::pair(device, peer) || pair == std::pair(peer, device);
  });
}

}  // namespace cuvmm::emulator
