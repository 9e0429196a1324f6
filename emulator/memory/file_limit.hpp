// A failure of the operating system that has a name of its own.
#pragma once

#include <new>

namespace cuvmm::emulator::memory {

// The process may not make a file as large as more memory needs (RLIMIT_FSIZE).
class FileLimitReached final : public std::bad_alloc {
 public:
  [[nodiscard]] const char* what() const noexcept override {
    return "the file that backs emulated memory may not grow: the limit of file sizes (RLIMIT_FSIZE, ulimit -f) is too "
           "low; raise it";
  }
};

}  // namespace cuvmm::emulator::memory
