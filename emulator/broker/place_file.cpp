#include "emulator/broker/place_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace cuvmm::emulator::broker {

PlaceFile::PlaceFile(const char* name) : file_(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!file_ || ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot create the file that backs emulated memory");
}

int PlaceFile::grow(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t step = std::uint64_t{1} << 30;
  if (bytes <= bytes_) return 0;
  const std::uint64_t whole = (bytes + step - 1) / step * step;
  for (const std::uint64_t size : {whole, bytes}) {  // a limit may lie between the two
    if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) continue;
    bytes_ = size;
    return 0;
  }
  return errno;
}

bool PlaceFile::make_zero(std::uint64_t offset, std::uint64_t bytes) noexcept {
  int done = 0;
  do
    done = ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(bytes));
  while (done != 0 && errno == EINTR);
  return done == 0;
}

}  // namespace cuvmm::emulator::broker
