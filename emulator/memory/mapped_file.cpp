#include "emulator/memory/mapped_file.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "emulator/memory/unmapping.hpp"

namespace cuvmm::emulator::memory {

MappedFile::~MappedFile() {
  for (const auto& [number, slab] : slabs_) unmap(slab, slab_bytes);
}

void* MappedFile::map(void* place, std::size_t bytes, int protection, int flags, std::uint64_t offset) const noexcept {
  void* const mapped = ::mmap(place, bytes, protection, MAP_SHARED | flags, file_.get(), static_cast<off_t>(offset));
  if (mapped == MAP_FAILED || children_ == Children::inherit) return mapped;
  if (::madvise(mapped, bytes, MADV_DONTFORK) == 0) return mapped;
  const int error = errno;
  unmap(mapped, bytes);
  errno = error;
  return MAP_FAILED;
}

std::byte* MappedFile::slab(std::uint64_t number) {
  const auto known = slabs_.find(number);
  if (known != slabs_.end()) return known->second;
  const auto entry = slabs_.emplace(number, nullptr).first;
  void* const mapped = map(nullptr, slab_bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE, number * slab_bytes);
  if (mapped == MAP_FAILED) {
    slabs_.erase(entry);
    throw std::system_error(errno, std::generic_category(), "cannot map emulated memory into the process (mmap)");
  }
  return entry->second = static_cast<std::byte*>(mapped);
}

std::span<std::byte> MappedFile::bytes(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t within = offset % slab_bytes;
  const std::lock_guard lock(mutex_);
  return {slab(offset / slab_bytes) + within, static_cast<std::size_t>(std::min(bytes, slab_bytes - within))};
}

void MappedFile::prepare(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  for (std::uint64_t number = offset / slab_bytes; number <= (offset + bytes - 1) / slab_bytes; ++number)
    (void)slab(number);
}

}  // namespace cuvmm::emulator::memory
