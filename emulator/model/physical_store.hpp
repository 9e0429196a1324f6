// Physical memory: what exists, where, and for how long.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "driver/abi.hpp"
#include "emulator/model/place.hpp"

namespace cuvmm::emulator::model {

// One piece of physical memory. It lives as long as anything refers to it: a handle, a mapping through one, an exported
// descriptor, or work that is using its bytes.
struct Allocation {
  std::uint64_t id = 0;
  Place place;
  std::uint64_t bytes = 0;
  abi::CUmemAllocationProp properties{};
  std::uint32_t references = 0;
};

// All physical memory of a machine. Not thread-safe.
class PhysicalStore {
 public:
  // `on_death` is called when the last reference to an allocation goes, after its bytes were given back to the ledger.
  // It must not throw.
  PhysicalStore(Ledger ledger, std::function<void(const Allocation&)> on_death)
      : ledger_(std::move(ledger)), on_death_(std::move(on_death)) {}

  // New memory with one reference, held by the caller; null if the place has too little left.
  [[nodiscard]] Allocation* create(Place place, std::uint64_t bytes, const abi::CUmemAllocationProp& properties);

  void add_reference(Allocation& allocation) noexcept { ++allocation.references; }
  void drop_reference(Allocation& allocation) noexcept;

  [[nodiscard]] const Ledger& ledger() const noexcept { return ledger_; }
  [[nodiscard]] std::size_t live_allocations() const noexcept { return allocations_.size(); }

 private:
  Ledger ledger_;
  std::function<void(const Allocation&)> on_death_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Allocation>> allocations_;
  std::uint64_t next_id_ = 1;
};

}  // namespace cuvmm::emulator::model
