// Page-locked host memory: allocated and registered.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <iterator>

#include "emulator/api/machine.hpp"

namespace cuvmm::emulator::api {
namespace {

constexpr std::size_t page_bytes = 4096;

}  // namespace

const HostRange* Machine::host_range(std::uintptr_t address) const {
  auto after = host_ranges_.upper_bound(address);
  if (after == host_ranges_.begin()) return nullptr;
  const HostRange& candidate = std::prev(after)->second;
  return address - candidate.address < candidate.bytes ? &candidate : nullptr;
}

std::optional<HostRange> Machine::find_host_range(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const HostRange* found = host_range(address);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

Answer Machine::allocate_host(void** pointer, std::uint64_t bytes, unsigned flags, std::uint64_t owner) {
  constexpr unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pointer == nullptr || bytes == 0 || (flags & ~known) != 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            fmt::format("pp must not be null, bytesize not 0 (is {}), flags known (are {:#x})", bytes, flags)};
  const std::lock_guard lock(mutex_);
  const std::uint64_t whole = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* memory =
      whole < bytes || whole > configuration_.profile.host_memory ? nullptr : std::aligned_alloc(page_bytes, whole);
  if (memory == nullptr)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::create_capacity, fmt::format("{} bytes of host memory", bytes)};
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  try {
    host_ranges_[address] = HostRange{address, bytes, flags, true, owner};
  } catch (...) {
    std::free(memory);
    throw;
  }
  *pointer = memory;
  return {};
}

Answer Machine::free_host(void* pointer) {
  const std::lock_guard lock(mutex_);
  auto found = host_ranges_.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == host_ranges_.end() || !found->second.allocated)
    return {CUDA_ERROR_INVALID_VALUE, Rule::heap_pointer, fmt::format("{} was not allocated here", pointer)};
  std::free(pointer);
  host_ranges_.erase(found);
  return {};
}

Answer Machine::check_host_registration(std::uintptr_t address, std::uint64_t bytes, unsigned flags) const {
  constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                             CU_MEMHOSTREGISTER_READ_ONLY;
  if (address == 0 || bytes == 0 || (flags & ~known) != 0 || address + bytes < address)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            fmt::format("p must not be null, bytesize not 0 (is {}), flags known (are {:#x})", bytes, flags)};
  auto next = host_ranges_.upper_bound(address);
  const bool overlaps = (next != host_ranges_.end() && next->first < address + bytes) || host_range(address) != nullptr;
  if (overlaps)
    return {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, Rule::host_registration,
            fmt::format("part of {:#x} + {} is page-locked already", address, bytes)};
  return {};
}

Answer Machine::register_host(void* pointer, std::uint64_t bytes, unsigned flags, std::uint64_t owner) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  if (Answer answer = check_host_registration(address, bytes, flags); !answer.ok()) return answer;
  host_ranges_[address] = HostRange{address, bytes, flags, false, owner};
  return {};
}

Answer Machine::unregister_host(void* pointer) {
  const std::lock_guard lock(mutex_);
  auto found = host_ranges_.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == host_ranges_.end() || found->second.allocated)
    return {pointer == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
            Rule::host_registration, fmt::format("nothing was registered at {}", pointer)};
  host_ranges_.erase(found);
  return {};
}

}  // namespace cuvmm::emulator::api
