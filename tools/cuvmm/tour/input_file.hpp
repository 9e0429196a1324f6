// The file whose bytes the tour moves.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cuvmm::tour {

// An ordinary file, opened for reading. It is read several times, at any place, so that pipes and devices are refused.
// Thread-safety: reads may run at the same time.
class InputFile {
 public:
  // Throws InputError if there is no such file, if it is no ordinary file, or if it cannot be read.
  explicit InputFile(std::string path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  // Its size in bytes when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  // Fills `bytes` with the content from `offset` on. Throws InputError if the file has become too short for that.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

  // Throws InputError if the file was written to since it was opened, as far as its size and times tell.
  void require_unchanged() const;

 private:
  [[nodiscard]] struct ::stat status() const;

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  struct ::timespec modified_ {};
};

}  // namespace cuvmm::tour
