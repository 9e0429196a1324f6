#include "emulator/kernels/host_kernels.hpp"

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "gpu/checksum.hpp"

namespace cuvmm::emulator::host_kernels {

static_assert(std::endian::native == std::endian::little, "words are read and written as they lie in memory");

void fill(std::span<std::byte> destination, std::uint64_t pattern) noexcept {
  const std::size_t whole = destination.size() / sizeof(pattern) * sizeof(pattern);
  for (std::size_t at = 0; at < whole; at += sizeof(pattern)) {
    std::memcpy(destination.data() + at, &pattern, sizeof(pattern));
  }
  if (whole < destination.size()) std::memcpy(destination.data() + whole, &pattern, destination.size() - whole);
}

void copy(std::span<std::byte> destination, std::span<const std::byte> source) noexcept {
  if (!source.empty()) std::memcpy(destination.data(), source.data(), source.size());
}

std::uint64_t checksum(std::span<const std::byte> source, std::uint64_t first_word) noexcept {
  const std::uint64_t whole_words = source.size() / gpu::checksum_word_bytes;
  std::uint64_t sum = 0;
  for (std::uint64_t index = 0; index < whole_words; ++index) {
    std::uint64_t word = 0;
    std::memcpy(&word, source.data() + index * sizeof(word), sizeof(word));
    sum += gpu::checksum_term(word, first_word + index);
  }
  if (whole_words < gpu::checksum_words(source.size())) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(source.data());
    sum += gpu::checksum_term(gpu::checksum_word(bytes, source.size(), whole_words), first_word + whole_words);
  }
  return sum;
}

void scale_add(std::span<float> y, std::span<const float> x, float factor) noexcept {
  for (std::size_t index = 0; index < y.size(); ++index) y[index] = std::fma(factor, x[index], y[index]);
}

bool spin(const std::uint32_t& flag, std::uint64_t most_polls) noexcept {
  // atomic_ref refuses const objects in C++20; it is only read.
  const std::atomic_ref<std::uint32_t> shared(const_cast<std::uint32_t&>(flag));
  for (std::uint64_t poll = 0; poll < most_polls; ++poll) {
    if (shared.load(std::memory_order_acquire) != 0) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(1));
  }
  return false;
}

std::uint64_t alias(std::span<std::byte> written, std::span<const std::byte> source, std::span<const std::byte> read,
                    std::uint64_t first_word) noexcept {
  copy(written, source);
  // The compiler does not know that `read` is the same memory.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return checksum(read, first_word);
}

std::uint64_t sum_of_words(std::span<const std::byte> source) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= source.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, source.data() + at, sizeof word);
    sum += word;
  }
  return sum;
}

}  // namespace cuvmm::emulator::host_kernels
