// A content as a sum: what each rank of a team has looks like noise, and only the sum of all of it is the content. A
// rank that is left out of a reduction, or counted twice, leaves nothing of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "gpu/checksum.hpp"

namespace cuvmm::tour {

// Writes the rank's share of the content, in words that are added modulo 2^64, to `words`, which the content fills but
// for a part of the last ones; `first_word` is how many words of the whole come before.
inline void write_share(std::size_t rank, std::size_t ranks, std::uint64_t first_word,
                        std::span<const std::byte> content, std::span<std::byte> words) {
  constexpr std::size_t bytes = sizeof(std::uint64_t);
  const auto noise = [](std::uint64_t of, std::uint64_t index) { return gpu::mix64((of + 1) << 48 ^ index); };
  for (std::size_t at = 0; at + bytes <= words.size(); at += bytes) {
    const std::uint64_t index = first_word + at / bytes;
    std::uint64_t word = 0;
    if (rank + 1 < ranks) {
      word = noise(rank, index);
    } else {
      if (at < content.size())
        std::memcpy(&word, content.data() + at, content.size() - at < bytes ? content.size() - at : bytes);
      for (std::size_t other = 0; other + 1 < ranks; ++other) word -= noise(other, index);
    }
    std::memcpy(words.data() + at, &word, bytes);
  }
}

}  // namespace cuvmm::tour
