// The owner of a mapping of physical memory into a range of addresses.
#pragma once

#include <cstddef>
#include <memory>

#include "cuvmm/address_reservation.hpp"
#include "cuvmm/physical_memory.hpp"
#include "cuvmm/result.hpp"

namespace cuvmm {

// Physical memory at addresses (guide 4.16.2.4; cuMemMap, cuMemUnmap). A mapping covers a whole allocation and keeps it
// and the reservation alive. A new mapping may be accessed by nobody: see access_grant.hpp.
//
// Unmapping does not wait for the device: work that still uses the range then dies with an illegal address, and the
// context with it. So wait for all work on the range, asynchronous copies and memsets included, before a mapping is
// destroyed. Destruction never throws: a failure goes to the clean-up failure handler.
//
// Different objects may be used from different threads. A moved-from one may be assigned to or destroyed, and asked for
// its address and size, which are 0; all else is refused (InvalidUse).
class Mapping {
 public:
  // Maps all of `memory` at `offset` bytes into the reservation. Throws InvalidUse if it would not end inside the
  // reservation (which the driver does not check), if `offset` is no multiple of the granularity, if something is
  // mapped there, or if the two belong to different drivers.
  [[nodiscard]] static Mapping create(const AddressReservation& reservation, std::size_t offset,
                                      const PhysicalMemory& memory);

  // The same, with the failure as a value.
  [[nodiscard]] static Result<Mapping> try_create(const AddressReservation& reservation, std::size_t offset,
                                                  const PhysicalMemory& memory);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size() const noexcept {  // bytes
    return size_;
  }
  [[nodiscard]] Location location() const;  // where its memory lies
  [[nodiscard]] const Driver& driver() const;

  // Unmaps now; afterwards the object is as moved from. Throws Error if the driver refuses, and then still owns the
  // mapping.
  void unmap();

 private:
  Mapping(std::shared_ptr<AddressReservation::State> reservation, std::shared_ptr<PhysicalMemory::State> memory,
          DeviceAddress address, std::size_t size) noexcept;

  std::shared_ptr<AddressReservation::State> reservation_;
  std::shared_ptr<PhysicalMemory::State> memory_;
  DeviceAddress address_;
  std::size_t size_ = 0;
};

}  // namespace cuvmm
