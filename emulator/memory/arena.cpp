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
// Far more offsets than any device has bytes, so that fragmentation never refuses what the capacity allows.
constexpr std::uint64_t offset_space = std::uint64_t{1} << 50;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

FileDescriptor made(const char* name) {
  FileDescriptor file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) throw_errno("cannot create the file that backs emulated memory (memfd_create)");
  return file;
}

}  // namespace

Arena::Arena(const char* name, std::uint64_t gap_bytes)
    : MappedFile(made(name), Children::inherit), gap_bytes_(gap_bytes), free_(0, offset_space) {}

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
  if (::ftruncate(descriptor(), static_cast<off_t>(whole)) != 0)
    throw_errno("cannot enlarge the file that backs emulated memory (ftruncate)");
  file_bytes_ = whole;
}

void Arena::give_back(std::uint64_t offset, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  ::fallocate(descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  free_.give_back(offset, bytes + gap_bytes_);
}

}  // namespace cuvmm::emulator::memory
