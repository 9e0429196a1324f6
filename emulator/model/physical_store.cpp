#include "emulator/model/physical_store.hpp"

namespace cuvmm::emulator::model {

Allocation* PhysicalStore::create(Place place, std::uint64_t bytes, const abi::CUmemAllocationProp& properties) {
  auto allocation = std::make_unique<Allocation>(Allocation{next_id_, place, bytes, properties, 1});
  Allocation* created = allocation.get();
  if (!ledger_.take(place, bytes)) return nullptr;
  try {
    allocations_.emplace(next_id_, std::move(allocation));
  } catch (...) {
    ledger_.give_back(place, bytes);
    throw;
  }
  ++next_id_;
  return created;
}

void PhysicalStore::drop_reference(Allocation& allocation) noexcept {
  if (--allocation.references > 0) return;
  auto node = allocations_.extract(allocation.id);
  ledger_.give_back(allocation.place, allocation.bytes);
  on_death_(*node.mapped());
}

}  // namespace cuvmm::emulator::model
