#include "recyclable_memory.hpp"

namespace cuvmm {

// Never destroyed: memory of static storage may go after other static objects.
RecyclableMemory& RecyclableMemory::all() {
  static RecyclableMemory& memory = *new RecyclableMemory;
  return memory;
}

void RecyclableMemory::add(abi::CUmemGenericAllocationHandle handle, std::atomic<bool>& recyclable) {
  const std::lock_guard lock(mutex_);
  memory_.emplace(handle, &recyclable);
}

void RecyclableMemory::remove(abi::CUmemGenericAllocationHandle handle, const std::atomic<bool>& recyclable) noexcept {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = memory_.equal_range(handle);
  for (auto each = first; each != last; ++each)
    if (each->second == &recyclable) {
      memory_.erase(each);
      return;
    }
}

void RecyclableMemory::held_elsewhere(abi::CUmemGenericAllocationHandle handle) noexcept {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = memory_.equal_range(handle);
  for (auto each = first; each != last; ++each) each->second->store(false);
}

bool RecyclableMemory::empty() const noexcept {
  const std::lock_guard lock(mutex_);
  return memory_.empty();
}

}  // namespace cuvmm
