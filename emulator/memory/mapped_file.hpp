// A file of bytes, as this process sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>

#include "emulator/memory/file_descriptor.hpp"

namespace cuvmm::emulator::memory {

// A file that is mapped into the process in large slabs when its bytes are first touched, so that neither the number of
// extents in it nor the size of the emulated device costs host mappings or host memory.
//
// Thread-safety: bytes, prepare and map may be called from any thread.
class MappedFile {
 public:
  // Whether a forked child has the mappings as well. It must not where the bytes can come to belong to another process
  // while the child lives on.
  enum class Children : unsigned char { inherit, have_none };

  MappedFile(FileDescriptor file, Children children) : file_(std::move(file)), children_(children) {}
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Up to `bytes` bytes from `offset` that lie in one piece in this process; never empty. Throws std::system_error if
  // the operating system refuses to map them.
  [[nodiscard]] std::span<std::byte> bytes(std::uint64_t offset, std::uint64_t bytes);

  // Has all of the range mapped, so that bytes() cannot fail there later. Throws as bytes() does.
  void prepare(std::uint64_t offset, std::uint64_t bytes);

  // mmap of the file, shared: answers as that does.
  [[nodiscard]] void* map(void* place, std::size_t bytes, int protection, int flags,
                          std::uint64_t offset) const noexcept;

 protected:
  static constexpr std::uint64_t slab_bytes = std::uint64_t{1} << 30;

  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }

 private:
  // Under the lock.
  [[nodiscard]] std::byte* slab(std::uint64_t number);

  FileDescriptor file_;
  const Children children_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::byte*> slabs_;  // slab number -> its first byte
};

}  // namespace cuvmm::emulator::memory
