// The bytes of one place's physical memory.
#pragma once

#include <cstdint>
#include <mutex>

#include "emulator/memory/file_limit.hpp"
#include "emulator/memory/mapped_file.hpp"
#include "emulator/model/address_space.hpp"

namespace cuvmm::emulator::memory {

// A sparse anonymous file that extents are cut from: only bytes that were written exist. Extents are zero when taken.
//
// Thread-safety: take and give_back may be called from any thread.
class Arena : public MappedFile {
 public:
  // `name` is what /proc shows. `gap_bytes`, a multiple of 2 MiB, keeps extents apart: mappings of neighbours are then
  // never one to the system, so that unmapping one alone splits nothing and cannot fail. Throws std::system_error if
  // the file cannot be made.
  explicit Arena(const char* name, std::uint64_t gap_bytes = 0);

  // The offset of a new extent, a multiple of 2 MiB. Throws std::bad_alloc, FileLimitReached among them, and
  // std::system_error if the operating system refuses a larger file.
  [[nodiscard]] std::uint64_t take(std::uint64_t bytes);
  // Gives back an extent that take() answered, whole, and its bytes to the operating system.
  void give_back(std::uint64_t offset, std::uint64_t bytes) noexcept;

 private:
  // Under the lock.
  void grow(std::uint64_t end);

  const std::uint64_t gap_bytes_;
  std::mutex mutex_;
  model::AddressSpace free_;
  std::uint64_t file_bytes_ = 0;
};

}  // namespace cuvmm::emulator::memory
