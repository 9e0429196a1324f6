// Page-locked host memory: allocated and registered.
#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

#include "emulator/api/machine.hpp"

namespace cuvmm::emulator::api {
namespace {

constexpr std::size_t page_bytes = 4096;

// Allocations of less than a page begin within one, as the driver's do, so that no program relies on their alignment.
constexpr std::size_t small_offset = 512;

// Whether the process has all of [begin, end) mapped for reading, and for writing if that is asked for.
bool mapped_by_process(std::uintptr_t begin, std::uintptr_t end, bool writable) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) throw std::system_error(errno, std::generic_category(), "cannot read /proc/self/maps");
  maps.exceptions(std::ios::badbit);  // a lack of memory is no end of the list
  for (std::string line; begin < end && std::getline(maps, line);) {
    std::istringstream fields(line);
    fields.exceptions(std::ios::badbit);
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    char dash = 0;
    std::string rights;
    fields >> std::hex >> from >> dash >> to >> rights;
    if (to <= begin) continue;
    if (from > begin || rights.size() < 2 || rights[0] != 'r' || (writable && rights[1] != 'w')) return false;
    begin = to;
  }
  return begin >= end;
}

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

std::optional<HostRange> Machine::next_host_range_of(std::uint64_t owner, std::uintptr_t after) {
  const std::lock_guard lock(mutex_);
  for (auto range = host_ranges_.upper_bound(after); range != host_ranges_.end(); ++range)
    if (range->second.owner == owner) return range->second;
  return std::nullopt;
}

std::optional<unsigned> Machine::host_flags(std::uintptr_t address, int device) {
  const auto facts = pointer_facts(address);
  if (!facts) return std::nullopt;
  // A mapping that the device may touch passes for portable host memory, be it in device memory.
  if (facts->is_mapping() && facts->open_to(device)) return CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
  const auto range = find_host_range(address);
  if (!range) return std::nullopt;
  if (range->managed) return CU_MEMHOSTALLOC_DEVICEMAP;
  // With unified addresses all page-locked memory is mapped for devices.
  const unsigned kept =
      range->allocated ? CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED : CU_MEMHOSTREGISTER_PORTABLE;
  return (range->flags & kept) | CU_MEMHOSTALLOC_DEVICEMAP;
}

Answer Machine::allocate_host(void** pointer, std::uint64_t bytes, unsigned flags, int device, std::uint64_t owner) {
  constexpr unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pointer == nullptr || (flags & ~known) != 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            fmt::format("pp must not be null, flags known (are {:#x})", flags)};
  if (bytes == 0) {
    *pointer = nullptr;
    return {};
  }
  const std::lock_guard lock(mutex_);
  const std::uint64_t whole = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* memory =
      whole < bytes || whole > configuration_.profile.host_memory ? nullptr : std::aligned_alloc(page_bytes, whole);
  if (memory == nullptr)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::create_capacity, fmt::format("{} bytes of host memory", bytes)};
  std::memset(memory, 0, whole);  // as pages from the driver are
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t address = bytes <= page_bytes - small_offset ? begin + small_offset : begin;
  try {
    host_ranges_[address] = HostRange{address, bytes, flags, true, owner, device, begin};
  } catch (...) {
    std::free(memory);
    throw;
  }
  *pointer = reinterpret_cast<void*>(address);
  return {};
}

Answer Machine::free_host(void* pointer) {
  const std::lock_guard lock(mutex_);
  auto found = host_ranges_.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == host_ranges_.end() || !found->second.allocated)
    return {CUDA_ERROR_INVALID_VALUE, Rule::heap_pointer, fmt::format("{} was not allocated here", pointer)};
  std::free(reinterpret_cast<void*>(found->second.begin));
  host_ranges_.erase(found);
  return {};
}

Answer Machine::check_host_registration(std::uintptr_t address, std::uint64_t bytes, unsigned flags) const {
  constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                             CU_MEMHOSTREGISTER_READ_ONLY;
  if (address == 0 || bytes == 0 || (flags & ~known) != 0 || address + bytes < address)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            fmt::format("p must not be null, bytesize not 0 (is {}), flags known (are {:#x})", bytes, flags)};
  const auto next = host_ranges_.upper_bound(address);
  const HostRange* taken = host_range(address);
  if (taken == nullptr && next != host_ranges_.end() && next->first < address + bytes) taken = &next->second;
  if (taken != nullptr)
    return {taken->allocated ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            Rule::host_registration, fmt::format("part of {:#x} + {} is page-locked already", address, bytes)};
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::host_pages,
            fmt::format("flags are {:#x}, and {:#x} is no I/O memory, of which this machine has none", flags, address)};
  const bool writable = (flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0;
  // What is mapped by virtual memory management is no memory of the process, though it may see it.
  if (addresses_.contains(address) || !mapped_by_process(address, address + bytes, writable))
    return {CUDA_ERROR_INVALID_VALUE, Rule::host_pages,
            fmt::format("{:#x} + {} is not all memory of the process that it may {}", address, bytes,
                        writable ? "write" : "read")};
  return {};
}

Answer Machine::register_host(void* pointer, std::uint64_t bytes, unsigned flags, int device, std::uint64_t owner) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  if (Answer answer = check_host_registration(address, bytes, flags); !answer.ok()) return answer;
  host_ranges_[address] = HostRange{address, bytes, flags, false, owner, device};
  return {};
}

Answer Machine::unregister_host(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const HostRange* found = host_range(address);
  if (pointer == nullptr || (found != nullptr && (found->allocated || found->address != address)))
    return {CUDA_ERROR_INVALID_VALUE, Rule::host_registration, fmt::format("no registration begins at {}", pointer)};
  if (found == nullptr)
    return {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, Rule::host_registration,
            fmt::format("nothing was registered at {}", pointer)};
  host_ranges_.erase(address);
  return {};
}

}  // namespace cuvmm::emulator::api
