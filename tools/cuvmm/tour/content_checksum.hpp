// The checksum (gpu/checksum.hpp) of bytes that come in pieces, taken by plain code on the host: what the tour holds
// against the drivers' answers. It shares the arithmetic with the kernels, and no code that reads memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "gpu/checksum.hpp"

namespace cuvmm::tour {

class ContentChecksum {
 public:
  // Adds the content's next bytes; pieces may have any size.
  void add(std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty() && bytes_ % gpu::checksum_word_bytes != 0) bytes = add_byte(bytes);
    while (bytes.size() >= gpu::checksum_word_bytes) {
      std::memcpy(&word_, bytes.data(), sizeof(word_));
      bytes_ += sizeof(word_);
      finish_word();
      bytes = bytes.subspan(sizeof(word_));
    }
    while (!bytes.empty()) bytes = add_byte(bytes);
  }

  // The checksum of all the bytes added so far.
  [[nodiscard]] std::uint64_t value() const noexcept {
    const bool started = bytes_ % gpu::checksum_word_bytes != 0;
    return started ? sum_ + gpu::checksum_term(word_, bytes_ / gpu::checksum_word_bytes) : sum_;
  }

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> add_byte(std::span<const std::byte> bytes) noexcept {
    word_ |= std::to_integer<std::uint64_t>(bytes.front()) << (8 * (bytes_ % gpu::checksum_word_bytes));
    if (++bytes_ % gpu::checksum_word_bytes == 0) finish_word();
    return bytes.subspan(1);
  }

  void finish_word() noexcept {
    sum_ += gpu::checksum_term(word_, bytes_ / gpu::checksum_word_bytes - 1);
    word_ = 0;
  }

  std::uint64_t sum_ = 0;
  std::uint64_t word_ = 0;  // the bytes of the word that has been started
  std::uint64_t bytes_ = 0;
};

}  // namespace cuvmm::tour
