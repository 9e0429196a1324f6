// Host memory of pools, as the process sees it.
#include <exception>

#include "emulator/api/machine.hpp"

namespace cuvmm::emulator::api {

// Called by the model, under the lock.
bool Machine::view_of_pool(const model::PoolAllocation& allocation, bool visible) noexcept try {
  if (!visible) {
    host_views_.remove(allocation.address);
    return true;
  }
  const std::uint64_t whole_pages = (allocation.bytes + 4095) / 4096 * 4096;
  return host_views_.set(allocation.address,
                         piece({allocation.extent.chunk->memory, allocation.extent.offset, whole_pages}),
                         CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
} catch (const std::exception&) {
  return false;
}

}  // namespace cuvmm::emulator::api
