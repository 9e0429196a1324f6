#include "emulator/memory/unmapping.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <ctime>

namespace cuvmm::emulator::memory {

bool unmap(void* place, std::size_t bytes) noexcept {
  constexpr int most_tries = 5;
  for (int tries = 1;; ++tries) {
    if (::munmap(place, bytes) == 0) return true;
    if (errno != ENOMEM || tries == most_tries) return false;
    const timespec moment{0, 1'000'000};
    (void)::nanosleep(&moment, nullptr);
    errno = ENOMEM;
  }
}

}  // namespace cuvmm::emulator::memory
