#include "emulator/model/physical_store.hpp"

#include <utility>

namespace cuvmm::emulator::model {

// Takes over memory that the supply just gave, which has it back if that fails.
Allocation& PhysicalStore::keep(const Allocation& facts) {
  try {
    auto allocation = std::make_unique<Allocation>(facts);
    allocation->references = 1;
    return *allocations_.emplace(facts.id, std::move(allocation)).first->second;
  } catch (...) {
    supply_.give_back(facts);
    throw;
  }
}

Allocation* PhysicalStore::create(Place place, std::uint64_t bytes, const abi::CUmemAllocationProp& properties) {
  auto id = supply_.take(place, bytes, properties);
  if (!id && reclaim_ && bytes <= supply_.total(place) && reclaim_(place)) id = supply_.take(place, bytes, properties);
  return id ? &keep({*id, place, bytes, properties, false, 0, 0, 0}) : nullptr;
}

Allocation& PhysicalStore::create_multicast(std::uint32_t devices, std::uint64_t bytes,
                                            const abi::CUmemAllocationProp& properties) {
  const std::uint64_t id = supply_.take_multicast(devices, bytes, properties);
  return keep({id, Place::of_multicast(), bytes, properties, false, 0, devices, 0});
}

Allocation* PhysicalStore::find(std::uint64_t id) const {
  const auto found = allocations_.find(id);
  return found == allocations_.end() ? nullptr : found->second.get();
}

Allocation& PhysicalStore::adopt(const Allocation& facts) {
  const auto known = allocations_.find(facts.id);
  if (known == allocations_.end()) return keep(facts);
  add_reference(*known->second);
  return *known->second;
}

void PhysicalStore::drop_reference(Allocation& allocation) noexcept {
  if (--allocation.references > 0) return;
  const auto node = allocations_.extract(allocation.id);
  supply_.give_back(*node.mapped());
}

}  // namespace cuvmm::emulator::model
