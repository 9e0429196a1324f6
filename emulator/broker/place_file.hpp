// The bytes of one place of a machine that processes share.
#pragma once

#include <cstdint>

#include "emulator/memory/file_descriptor.hpp"

namespace cuvmm::emulator::broker {

// A sparse anonymous file that processes map. It never shrinks, so that nobody can take bytes away from under others.
class PlaceFile {
 public:
  // `name` is what /proc shows. Throws std::system_error if the file cannot be made.
  explicit PlaceFile(const char* name);

  // Makes it that large. 0, or errno.
  [[nodiscard]] int grow(std::uint64_t bytes) noexcept;
  // Makes the range zero again, and gives its memory to the system. Answers whether that was done.
  [[nodiscard]] bool make_zero(std::uint64_t offset, std::uint64_t bytes) noexcept;

  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }

 private:
  memory::FileDescriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace cuvmm::emulator::broker
