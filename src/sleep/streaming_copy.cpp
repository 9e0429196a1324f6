#include "sleep/streaming_copy.hpp"

#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

namespace cuvmm::sleep {

#ifdef __x86_64__

namespace {

constexpr std::size_t line = 64;  // bytes of a cache line, which a processor writes at once where it has all of it
constexpr std::size_t fewest = 16 * line;

// The destination begins a line.
void copy_lines(std::byte* destination, const std::byte* source, std::size_t lines) noexcept {
  for (std::size_t index = 0; index < lines; ++index) {
    const auto* const from = reinterpret_cast<const __m128i*>(source + index * line);
    auto* const to = reinterpret_cast<__m128i*>(destination + index * line);
    const __m128i first = _mm_loadu_si128(from);
    const __m128i second = _mm_loadu_si128(from + 1);
    const __m128i third = _mm_loadu_si128(from + 2);
    const __m128i fourth = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, first);
    _mm_stream_si128(to + 1, second);
    _mm_stream_si128(to + 2, third);
    _mm_stream_si128(to + 3, fourth);
  }
}

}  // namespace

void copy_past_caches(std::byte* destination, const std::byte* source, std::size_t bytes) noexcept {
  if (bytes < fewest) {
    if (bytes != 0) std::memcpy(destination, source, bytes);
    return;
  }
  const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(destination) % line) % line;
  std::memcpy(destination, source, head);
  const std::size_t lines = (bytes - head) / line;
  copy_lines(destination + head, source + head, lines);
  const std::size_t done = head + lines * line;
  std::memcpy(destination + done, source + done, bytes - done);
  _mm_sfence();  // such stores are in no order with others until then
}

#else

void copy_past_caches(std::byte* destination, const std::byte* source, std::size_t bytes) noexcept {
  if (bytes != 0) std::memcpy(destination, source, bytes);
}

#endif

}  // namespace cuvmm::sleep
