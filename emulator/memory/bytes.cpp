#include "emulator/memory/bytes.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "emulator/memory/unmapping.hpp"

namespace cuvmm::emulator::memory {
namespace {

std::span<std::byte> bytes_of(const Piece& piece, std::uint64_t from, std::uint64_t count) {
  if (piece.file == nullptr) return {piece.host + from, static_cast<std::size_t>(count)};
  return piece.file->bytes(piece.offset + from, count);
}

// Walks over pieces in runs that lie in one piece in the process.
class Cursor {
 public:
  explicit Cursor(std::span<const Piece> pieces) : pieces_(pieces) { skip_empty(); }
  [[nodiscard]] bool done() const { return pieces_.empty(); }
  [[nodiscard]] std::span<std::byte> run() const { return bytes_of(pieces_.front(), at_, pieces_.front().bytes - at_); }
  void advance(std::size_t count) {
    at_ += count;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (!pieces_.empty() && at_ == pieces_.front().bytes) {
      pieces_ = pieces_.subspan(1);
      at_ = 0;
    }
  }
  std::span<const Piece> pieces_;
  std::uint64_t at_ = 0;
};

constexpr std::size_t page_bytes = 4096;

}  // namespace

void copy(std::span<const Piece> destination, std::span<const Piece> source) {
  Cursor to(destination);
  Cursor from(source);
  while (!to.done() && !from.done()) {
    const auto target = to.run();
    const auto origin = from.run();
    const std::size_t count = std::min(target.size(), origin.size());
    std::memmove(target.data(), origin.data(), count);
    to.advance(count);
    from.advance(count);
  }
}

void fill(std::span<const Piece> destination, std::uint32_t pattern, std::size_t pattern_bytes) {
  for (Cursor to(destination); !to.done();) {
    const auto target = to.run();
    if (pattern_bytes == 1) {
      std::memset(target.data(), static_cast<int>(pattern), target.size());
    } else {
      for (std::size_t at = 0; at + pattern_bytes <= target.size(); at += pattern_bytes)
        std::memcpy(target.data() + at, &pattern, pattern_bytes);
    }
    to.advance(target.size());
  }
}

Window::Window(std::span<const Piece> pieces, bool writable) {
  if (pieces.empty()) return;
  if (pieces.size() == 1 && pieces.front().file == nullptr) {
    data_ = pieces.front().host;
    return;
  }
  // The first piece may begin, and the last may end, within a page; all others are whole pages.
  const std::size_t lead = pieces.front().file == nullptr ? 0 : pieces.front().offset % page_bytes;
  std::uint64_t total = lead;
  for (const Piece& piece : pieces) total += piece.bytes;
  mapped_bytes_ = (total + page_bytes - 1) / page_bytes * page_bytes;
  mapped_ = ::mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "cannot make room for a window");
  std::byte* at = static_cast<std::byte*>(mapped_);
  data_ = at + lead;
  std::uint64_t skip = lead;
  for (const Piece& piece : pieces) {
    const std::size_t length = (piece.bytes + skip + page_bytes - 1) / page_bytes * page_bytes;
    if (piece.file == nullptr || piece.file->map(at, length, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_FIXED,
                                                 piece.offset - skip) == MAP_FAILED) {
      const int error = piece.file == nullptr ? EINVAL : errno;
      unmap(mapped_, mapped_bytes_);
      throw std::system_error(error, std::generic_category(), "cannot map memory into a window");
    }
    at += length;
    skip = 0;
  }
}

Window::Window(Window&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

Window::~Window() {
  if (mapped_ != nullptr) unmap(mapped_, mapped_bytes_);
}

}  // namespace cuvmm::emulator::memory
