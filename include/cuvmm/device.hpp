// A device, and what it can do.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "cuvmm/driver.hpp"
#include "cuvmm/memory_properties.hpp"

namespace cuvmm {

// One device of a driver; a value. Features are asked for one at a time (guide 4.16.1.2) and each answer is the
// driver's attribute: that a feature is announced does not prove that it works here. A driver that is too old to know
// an attribute announces nothing. All functions throw Error if the driver fails. Thread-safe.
class Device {
 public:
  [[nodiscard]] DeviceOrdinal ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] Location location() const noexcept { return Location::device(ordinal_); }
  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] int handle() const noexcept {  // the driver's CUdevice
    return handle_;
  }

  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::size_t total_memory() const;  // bytes
  [[nodiscard]] std::array<std::byte, 16> uuid() const;
  [[nodiscard]] std::string pci_bus_id() const;  // "0000:1b:00.0"

  [[nodiscard]] bool supports_virtual_memory_management() const;
  [[nodiscard]] bool supports_handle_type(HandleType type) const;  // creating and exporting memory with it
  [[nodiscard]] bool supports_compression() const;
  [[nodiscard]] bool supports_gpu_direct_rdma() const;
  [[nodiscard]] bool supports_host_memory() const;       // LocationKind::host for cuMemCreate
  [[nodiscard]] bool supports_host_numa_memory() const;  // LocationKind::host_numa for cuMemCreate
  [[nodiscard]] bool supports_multicast() const;         // false also where its entry points were not looked up

  // The NUMA node of the host that is nearest, or -1 if there is none.
  [[nodiscard]] int host_numa_node() const;

  // The unit of sizes and addresses of memory on this device with these properties, whose location is replaced
  // (cuMemGetAllocationGranularity).
  [[nodiscard]] std::size_t granularity(Granularity which = Granularity::minimum,
                                        const MemoryProperties& properties = {}) const;

  // Whether this device can access the memory of the other one directly (cuDeviceCanAccessPeer).
  [[nodiscard]] bool can_access_peer(const Device& peer) const;

  // An attribute by its number in CUdevice_attribute; throws InvalidUse if the driver does not know it.
  [[nodiscard]] int attribute(int attribute) const;

 private:
  friend class Driver;
  Device(Driver driver, DeviceOrdinal ordinal, int handle) noexcept
      : driver_(std::move(driver)), ordinal_(ordinal), handle_(handle) {}

  [[nodiscard]] bool announces(int attribute) const;

  Driver driver_;
  DeviceOrdinal ordinal_;
  int handle_;
};

}  // namespace cuvmm
