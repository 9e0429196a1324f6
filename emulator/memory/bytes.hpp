// Pieces of physical memory, and what can be done with their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "emulator/memory/mapped_file.hpp"

namespace cuvmm::emulator::memory {

// A run of bytes: in a file, or, where there is none, ordinary memory of the process.
struct Piece {
  MappedFile* file = nullptr;
  std::uint64_t offset = 0;   // in the file
  std::byte* host = nullptr;  // where file is null
  std::uint64_t bytes = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

// Copies the bytes of `source` over those of `destination`; both have the same number of bytes. Pieces that overlap are
// copied in order of their addresses, as a device may.
void copy(std::span<const Piece> destination, std::span<const Piece> source);

// Fills with a repeated pattern of 1, 2 or 4 bytes; the pieces' bytes are a multiple of it in all, and each piece
// begins at a multiple of it.
void fill(std::span<const Piece> destination, std::uint32_t pattern, std::size_t pattern_bytes);

// Pieces made contiguous in the process for as long as the window lives, with the given protection: what a host-run
// kernel works on. A single piece of ordinary memory is used in place.
class Window {
 public:
  // Throws std::system_error if the operating system refuses.
  Window(std::span<const Piece> pieces, bool writable);
  Window(Window&& other) noexcept;
  Window& operator=(Window&&) = delete;
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace cuvmm::emulator::memory
