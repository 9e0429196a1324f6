// Host memory that devices reach, as a memory resource of the standard library.
//
//   cuvmm::HostMemoryResource resource(driver, {.devices = {cuvmm::DeviceOrdinal{0}}});
//   std::pmr::vector<float> values(1'000'000, &resource);
//   launch(stream, values.data());  // the device reads what the host has written, where it lies
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <vector>

#include "cuvmm/driver.hpp"
#include "cuvmm/memory_properties.hpp"
#include "cuvmm/physical_source.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm {

struct HostMemoryOptions {
  Location location = Location::host();                  // or host_numa of a node
  std::vector<DeviceOrdinal> devices{DeviceOrdinal{0}};  // that may read and write all of it, beside the host
  // Requests of so many bytes and more have memory of their own, which goes back when they do; smaller ones are packed
  // side by side.
  std::size_t large_from = std::size_t{32} << 20;
  // Where physical memory is acquired, with its budget for that location. None: a source of the resource's own.
  std::shared_ptr<PhysicalSource> source{};
};

// All of it is pinned memory of cuMemCreate that the host and the devices are granted access to
// (guide 4.16.2, 4.16.5.1); device memory cannot be, since no driver lets a host access it that way. So it costs
// physical memory at once, and a device that uses it reads over its link.
//
// Deallocating is as with any memory resource: at once, without an order of streams. The work of devices that uses the
// memory has to be done. Memory that was packed is used again and kept until trim() or the resource's end; memory that
// is not deallocated by then goes all the same.
//
// allocate() throws std::bad_alloc, whose what() tells what was missing, where there is no memory or no address; and
// cuvmm::Error for what else goes wrong. Thread-safe: those who are served by what there is wait for no driver call.
class HostMemoryResource final : public std::pmr::memory_resource {
 public:
  // Throws InvalidUse for options that clash and for a location that is not the host's, NotSupported where the driver
  // has no such memory, and Error as it fails.
  explicit HostMemoryResource(const Driver& driver, const HostMemoryOptions& options = {});
  ~HostMemoryResource() override;
  HostMemoryResource(const HostMemoryResource&) = delete;
  HostMemoryResource& operator=(const HostMemoryResource&) = delete;
  HostMemoryResource(HostMemoryResource&&) = delete;
  HostMemoryResource& operator=(HostMemoryResource&&) = delete;

  // Gives back the packed memory behind the last byte that is in use, in whole chunks. Answers the bytes given back.
  std::size_t trim();

  [[nodiscard]] std::size_t live_bytes() const;      // allocated, rounded up to 64 bytes, or to granules where large
  [[nodiscard]] std::size_t reserved_bytes() const;  // of physical memory that exists for it

 private:
  [[nodiscard]] void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* pointer, std::size_t bytes, std::size_t alignment) override;
  // Whether it is the same one.
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm
