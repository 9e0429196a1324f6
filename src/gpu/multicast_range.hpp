// One multicast address for memory of several devices of this process.
#pragma once

#include <cstddef>
#include <span>

#include "cuvmm/address_reservation.hpp"
#include "cuvmm/device.hpp"
#include "cuvmm/mapped_range.hpp"
#include "cuvmm/multicast_object.hpp"
#include "cuvmm/result.hpp"

namespace cuvmm::gpu {

// A multicast object for the devices, to which the first bytes of one range of each are bound, mapped for all of them.
// Ranges may go before it does, which keeps their memory. For one thread.
class MulticastRange {
 public:
  // How many bytes of memory of the device a range has to have, so that `bytes` of them can be bound for that many
  // devices; or why there is no multicast: turned off, left out of the build, or not to be had of these devices.
  [[nodiscard]] static Result<std::size_t> try_fit(const Device& device, std::size_t devices, std::size_t bytes);

  // ranges[i] is memory of devices[i], the first `bytes` bytes of which, as many as try_fit answered, are one chunk.
  // Nothing is left of one that fails.
  [[nodiscard]] static Result<MulticastRange> try_create(std::span<const Device> devices,
                                                         std::span<const MappedRange* const> ranges, std::size_t bytes);

  [[nodiscard]] DeviceAddress address() const noexcept { return mapping_.address(); }
  [[nodiscard]] std::size_t size() const noexcept { return mapping_.size(); }  // bytes

 private:
  MulticastRange(MulticastObject object, MulticastMapping mapping) noexcept
      : object_(std::move(object)), mapping_(std::move(mapping)) {}

  MulticastObject object_;
  MulticastMapping mapping_;
};

}  // namespace cuvmm::gpu
