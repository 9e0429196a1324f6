#include "gpu/multicast_range.hpp"

#include <utility>
#include <vector>

namespace cuvmm::gpu {
namespace {

MulticastProperties properties_for(std::size_t devices, std::size_t bytes) {
  return {.devices = static_cast<unsigned>(devices), .bytes = bytes};
}

// All devices join before anything is bound: binding waits for them.
MulticastObject bound(std::span<const Device> devices, std::span<const MappedRange* const> ranges, std::size_t bytes) {
  auto object = MulticastObject::create(devices.front().driver(), properties_for(devices.size(), bytes));
  for (const Device& each : devices) object.add_device(each);
  for (const MappedRange* const each : ranges) object.bind_address(0, each->address(), bytes);
  return object;
}

}  // namespace

Result<std::size_t> MulticastRange::try_fit(const Device& device, std::size_t devices, std::size_t bytes) {
  try {
    return MulticastObject::fitted(device.driver(), properties_for(devices, bytes), {.location = device.location()})
        .bytes;
  } catch (const Error& error) {
    return error.failure();
  }
}

Result<MulticastRange> MulticastRange::try_create(std::span<const Device> devices,
                                                  std::span<const MappedRange* const> ranges, std::size_t bytes) {
  try {
    auto object = bound(devices, ranges, bytes);
    const MemoryProperties memory{.location = devices.front().location()};
    const auto fit = MulticastObject::fitted(object.driver(), object.properties(), memory);
    auto mapping = object.map(AddressReservation::create(object.driver(), bytes, fit.alignment));
    std::vector<AccessGrant> grants;
    for (const Device& each : devices) grants.push_back({each.location()});
    mapping.grant(grants);
    return MulticastRange(std::move(object), std::move(mapping));
  } catch (const Error& error) {
    return error.failure();
  }
}

}  // namespace cuvmm::gpu
