// The project's checksum of bytes, one arithmetic for GPU kernels, host-run kernels and plain host code.
//
// It is the sum, modulo 2^64, of one term for each 8-byte little-endian word, the last word filled up with zeros. A
// term mixes the word with its index, so that exchanged, moved or altered words change the sum; and since a sum does
// not care for the order of its terms, any number of GPU threads, or pieces of a file, give exactly the same value.
// Zeros that fill up the last word are not told from zeros that belong to the content: compare sizes as well.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define CUVMM_HOST_DEVICE __host__ __device__
#else
#define CUVMM_HOST_DEVICE
#endif

namespace cuvmm::gpu {

inline constexpr std::uint64_t checksum_word_bytes = 8;

// A bijection of 64-bit values in which every bit of the argument reaches every bit of the result.
CUVMM_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t value) noexcept {
  value ^= value >> 30;
  value *= 0xBF58476D1CE4E5B9ULL;
  value ^= value >> 27;
  value *= 0x94D049BB133111EBULL;
  value ^= value >> 31;
  return value;
}

// What the word at that index, counted in words from the start of the whole content, adds to the sum.
CUVMM_HOST_DEVICE constexpr std::uint64_t checksum_term(std::uint64_t word, std::uint64_t index) noexcept {
  return mix64(word ^ mix64(index + 0x9E3779B97F4A7C15ULL));
}

// How many words hold that many bytes.
CUVMM_HOST_DEVICE constexpr std::uint64_t checksum_words(std::uint64_t bytes) noexcept {
  return bytes / checksum_word_bytes + (bytes % checksum_word_bytes != 0 ? 1 : 0);
}

// The word at that index of `bytes` bytes, whatever their alignment.
CUVMM_HOST_DEVICE constexpr std::uint64_t checksum_word(const unsigned char* content, std::uint64_t bytes,
                                                        std::uint64_t index) noexcept {
  const std::uint64_t begin = index * checksum_word_bytes;
  const std::uint64_t count = bytes - begin < checksum_word_bytes ? bytes - begin : checksum_word_bytes;
  std::uint64_t word = 0;
  for (std::uint64_t byte = 0; byte < count; ++byte) word |= std::uint64_t{content[begin + byte]} << (8 * byte);
  return word;
}

}  // namespace cuvmm::gpu
