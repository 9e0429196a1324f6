// Physical memory: what the process has of it, and for how long.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "driver/abi.hpp"
#include "emulator/model/physical_supply.hpp"
#include "emulator/model/place.hpp"

namespace cuvmm::emulator::model {

// All physical memory that the process refers to. Not thread-safe.
class PhysicalStore {
 public:
  explicit PhysicalStore(PhysicalSupply& supply) : supply_(supply) {}

  // Called when a place has too little left: gives back what the process has of it and does not use, if there is any.
  void set_reclaim(std::function<bool(Place)> reclaim) { reclaim_ = std::move(reclaim); }

  // New memory with one reference, held by the caller; null if the place has too little left. Throws as the supply
  // does.
  [[nodiscard]] Allocation* create(Place place, std::uint64_t bytes, const abi::CUmemAllocationProp& properties);

  // The same of a multicast object.
  [[nodiscard]] Allocation& create_multicast(std::uint32_t devices, std::uint64_t bytes,
                                             const abi::CUmemAllocationProp& properties);

  // Memory that the supply gave to this process in another way, with one more reference, held by the caller. If it
  // throws, the supply has it back unless it was known already.
  [[nodiscard]] Allocation& adopt(const Allocation& facts);

  void add_reference(Allocation& allocation) noexcept { ++allocation.references; }
  void drop_reference(Allocation& allocation) noexcept;

  [[nodiscard]] std::uint64_t free(Place place) const { return supply_.free(place); }
  [[nodiscard]] std::uint64_t total(Place place) const { return supply_.total(place); }
  [[nodiscard]] bool has_imex_channel() const { return supply_.has_imex_channel(); }
  [[nodiscard]] PhysicalSupply& supply() const noexcept { return supply_; }
  // What the process knows under that identity; null if it refers to it no more.
  [[nodiscard]] Allocation* find(std::uint64_t id) const;
  [[nodiscard]] std::size_t live_allocations() const noexcept { return allocations_.size(); }

 private:
  Allocation& keep(const Allocation& facts);

  PhysicalSupply& supply_;
  std::function<bool(Place)> reclaim_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Allocation>> allocations_;
};

}  // namespace cuvmm::emulator::model
