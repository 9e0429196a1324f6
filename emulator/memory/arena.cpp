#include "emulator/memory/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

namespace cuvmm::emulator::memory {
namespace {

constexpr std::uint64_t extent_alignment = std::uint64_t{2} << 20;
constexpr std::uint64_t slab_bytes = std::uint64_t{1} << 30;
// Far more offsets than any device has bytes, so that fragmentation never refuses what the capacity allows.
constexpr std::uint64_t offset_space = std::uint64_t{1} << 50;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Arena::Arena(const char* name) : file_(::memfd_create(name, MFD_CLOEXEC)), free_(0, offset_space) {
  if (!file_) throw_errno("cannot create the file that backs emulated memory (memfd_create)");
}

Arena::~Arena() {
  for (const auto& [number, slab] : slabs_) ::munmap(slab, slab_bytes);
}

std::uint64_t Arena::take(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto offset = free_.take(bytes, extent_alignment);
  if (!offset) throw std::bad_alloc();
  const std::uint64_t end = (*offset + bytes + slab_bytes - 1) / slab_bytes * slab_bytes;
  if (end > file_bytes_) {
    if (::ftruncate(file_.get(), static_cast<off_t>(end)) != 0) {
      free_.give_back(*offset, bytes);
      throw_errno("cannot enlarge the file that backs emulated memory (ftruncate)");
    }
    file_bytes_ = end;
  }
  return *offset;
}

void Arena::give_back(std::uint64_t offset, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  free_.give_back(offset, bytes);
}

std::span<std::byte> Arena::bytes(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t number = offset / slab_bytes;
  const std::uint64_t within = offset % slab_bytes;
  const std::lock_guard lock(mutex_);
  auto [slab, added] = slabs_.try_emplace(number, nullptr);
  if (slab->second == nullptr) {
    void* mapped = ::mmap(nullptr, slab_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(),
                          static_cast<off_t>(number * slab_bytes));
    if (mapped == MAP_FAILED) throw_errno("cannot map emulated memory into the process (mmap)");
    slab->second = static_cast<std::byte*>(mapped);
  }
  return {slab->second + within, static_cast<std::size_t>(std::min(bytes, slab_bytes - within))};
}

}  // namespace cuvmm::emulator::memory
