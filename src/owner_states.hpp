// What the owners own. A state gives back what it stands for when the last owner that shares it is gone.
#pragma once

#include <atomic>

#include "clean_up.hpp"
#include "cuvmm/address_reservation.hpp"
#include "cuvmm/physical_memory.hpp"
#include "recyclable_memory.hpp"

namespace cuvmm {

struct PhysicalMemory::State {
  State(const Driver& owning_driver, const MemoryProperties& its_properties, std::size_t bytes)
      : driver(owning_driver), properties(its_properties), size(bytes) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (listed) RecyclableMemory::all().remove(handle, recyclable);  // first: the driver may give the number again
    if (owned) clean_up<driver::EntryPoint::cuMemRelease>(driver.interface(), handle);
  }

  Driver driver;
  MemoryProperties properties;
  std::size_t size;
  unsigned long long handle = 0;
  bool owned = false;
  std::atomic<bool> recyclable = true;  // false once others may still reach it: an unmapping failed, or it was retained
  bool listed = false;                  // in RecyclableMemory
  std::shared_ptr<const void> charge;   // what a source counts until the memory is gone
};

struct AddressReservation::State {
  State(const Driver& owning_driver, std::size_t bytes) : driver(owning_driver), size(bytes) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (owned) clean_up<driver::EntryPoint::cuMemAddressFree>(driver.interface(), address.value, size);
  }

  Driver driver;
  DeviceAddress address;
  std::size_t size;
  bool owned = false;
};

}  // namespace cuvmm
