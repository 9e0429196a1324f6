#include "emulator/memory/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

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

Arena::Arena(const char* name, std::uint64_t gap_bytes)
    : file_(::memfd_create(name, MFD_CLOEXEC)), gap_bytes_(gap_bytes), free_(0, offset_space) {
  if (!file_) throw_errno("cannot create the file that backs emulated memory (memfd_create)");
}

Arena::~Arena() {
  for (const auto& [number, slab] : slabs_) ::munmap(slab, slab_bytes);
}

std::uint64_t Arena::take(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto offset = free_.take(bytes + gap_bytes_, extent_alignment);
  if (!offset) throw std::bad_alloc();
  try {
    grow(*offset + bytes);
  } catch (...) {
    free_.give_back(*offset, bytes + gap_bytes_);
    throw;
  }
  return *offset;
}

// By whole slabs, as far as the limit of file sizes allows: going beyond it would end the process by SIGXFSZ.
void Arena::grow(std::uint64_t end) {
  if (end <= file_bytes_) return;
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) throw_errno("cannot ask for the limit of file sizes (getrlimit)");
  if (end > limit.rlim_cur) throw FileLimitReached();
  const std::uint64_t whole = std::min<std::uint64_t>((end + slab_bytes - 1) / slab_bytes * slab_bytes, limit.rlim_cur);
  if (::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0)
    throw_errno("cannot enlarge the file that backs emulated memory (ftruncate)");
  file_bytes_ = whole;
}

void Arena::give_back(std::uint64_t offset, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  free_.give_back(offset, bytes + gap_bytes_);
}

std::byte* Arena::slab(std::uint64_t number) {
  const auto known = slabs_.find(number);
  if (known != slabs_.end()) return known->second;
  const auto entry = slabs_.emplace(number, nullptr).first;
  void* mapped = ::mmap(nullptr, slab_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(),
                        static_cast<off_t>(number * slab_bytes));
  if (mapped == MAP_FAILED) {
    slabs_.erase(entry);
    throw_errno("cannot map emulated memory into the process (mmap)");
  }
  return entry->second = static_cast<std::byte*>(mapped);
}

std::span<std::byte> Arena::bytes(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t within = offset % slab_bytes;
  const std::lock_guard lock(mutex_);
  return {slab(offset / slab_bytes) + within, static_cast<std::size_t>(std::min(bytes, slab_bytes - within))};
}

void Arena::prepare(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  for (std::uint64_t number = offset / slab_bytes; number <= (offset + bytes - 1) / slab_bytes; ++number)
    (void)slab(number);
}

}  // namespace cuvmm::emulator::memory
