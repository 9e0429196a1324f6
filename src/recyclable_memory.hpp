// Memory that sources may hand out again, found by its handle.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "driver/abi.hpp"

namespace cuvmm {

// Retaining a mapped address answers the handle that the memory was created with, and so tells whether the memory is a
// source's. Handles of several drivers may be the same number: then all of them count as meant. Thread-safe.
class RecyclableMemory {
 public:
  [[nodiscard]] static RecyclableMemory& all();

  // Until it is removed. `recyclable` becomes false where others hold on to the memory.
  void add(abi::CUmemGenericAllocationHandle handle, std::atomic<bool>& recyclable);
  void remove(abi::CUmemGenericAllocationHandle handle, const std::atomic<bool>& recyclable) noexcept;

  // Others hold on to the memory of that handle, from now on.
  void held_elsewhere(abi::CUmemGenericAllocationHandle handle) noexcept;

  // Whether there is none: then nobody need ask for handles.
  [[nodiscard]] bool empty() const noexcept;

 private:
  mutable std::mutex mutex_;
  std::multimap<abi::CUmemGenericAllocationHandle, std::atomic<bool>*> memory_;
};

}  // namespace cuvmm
