// The bytes of one place's physical memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "emulator/memory/file_descriptor.hpp"
#include "emulator/model/address_space.hpp"

namespace cuvmm::emulator::memory {

// The process may not make a file as large as more memory needs (RLIMIT_FSIZE).
class FileLimitReached final : public std::bad_alloc {
 public:
  [[nodiscard]] const char* what() const noexcept override {
    return "the file that backs emulated memory may not grow: the limit of file sizes (RLIMIT_FSIZE, ulimit -f) is too "
           "low; raise it";
  }
};

// A sparse anonymous file that extents are cut from. Its bytes are mapped into the process in large slabs when they are
// first touched, so that neither the number of extents nor the size of the emulated device costs host mappings or host
// memory: only bytes that were written exist. Extents are zero when taken.
//
// Thread-safety: take, give_back and bytes may be called from any thread.
class Arena {
 public:
  // `name` is what /proc shows. `gap_bytes`, a multiple of 2 MiB, keeps extents apart: mappings of neighbours are then
  // never one to the system, so that unmapping one alone splits nothing and cannot fail. Throws std::system_error if
  // the file cannot be made.
  explicit Arena(const char* name, std::uint64_t gap_bytes = 0);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The offset of a new extent, a multiple of 2 MiB. Throws std::bad_alloc, FileLimitReached among them, and
  // std::system_error if the operating system refuses a larger file.
  [[nodiscard]] std::uint64_t take(std::uint64_t bytes);
  // Gives back an extent that take() answered, whole, and its bytes to the operating system.
  void give_back(std::uint64_t offset, std::uint64_t bytes) noexcept;

  // Up to `bytes` bytes from `offset` that lie in one piece in this process; never empty. Throws std::system_error if
  // the operating system refuses to map them.
  [[nodiscard]] std::span<std::byte> bytes(std::uint64_t offset, std::uint64_t bytes);

  // Has all of the range mapped, so that bytes() cannot fail there later. Throws as bytes() does.
  void prepare(std::uint64_t offset, std::uint64_t bytes);

  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }

 private:
  // Under the lock.
  [[nodiscard]] std::byte* slab(std::uint64_t number);
  void grow(std::uint64_t end);

  FileDescriptor file_;
  const std::uint64_t gap_bytes_;
  std::mutex mutex_;
  model::AddressSpace free_;
  std::map<std::uint64_t, std::byte*> slabs_;  // slab number -> its first byte
  std::uint64_t file_bytes_ = 0;
};

}  // namespace cuvmm::emulator::memory
