// What the project's kernels (gpu/kernel_signatures.hpp) do, as plain functions over host memory: the emulated driver
// runs them where a GPU would run the kernels of the same names. They know nothing of devices, rights or streams.
// Thread-safety: as memcpy's: no state, the caller keeps others off the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cuvmm::emulator::host_kernels {

// cuvmm_fill: `pattern`'s eight bytes, lowest first, again and again.
void fill(std::span<std::byte> destination, std::uint64_t pattern) noexcept;

// cuvmm_copy: the ranges have one size and do not overlap.
void copy(std::span<std::byte> destination, std::span<const std::byte> source) noexcept;

// cuvmm_checksum: what the kernel adds to its sum. The first word counts as word `first_word` of the whole content.
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> source, std::uint64_t first_word) noexcept;

// cuvmm_scale_add: y[i] = factor * x[i] + y[i], rounded once. Both have one size.
void scale_add(std::span<float> y, std::span<const float> x, float factor) noexcept;

// cuvmm_spin: waits until `flag` is not zero or it has been looked at `most_polls` times; other threads, and other
// processes if it lies in shared memory, may set it. Whether it was seen set.
bool spin(const std::uint32_t& flag, std::uint64_t most_polls) noexcept;

// cuvmm_alias: copies the source, then takes the checksum of `read`, which shows the memory of `written` at another
// address. All have one size. The first word counts as word `first_word`.
[[nodiscard]] std::uint64_t alias(std::span<std::byte> written, std::span<const std::byte> source,
                                  std::span<const std::byte> read, std::uint64_t first_word) noexcept;

// cuvmm_read, of one tile, whose size is a multiple of 8: what it adds to the sum.
[[nodiscard]] std::uint64_t sum_of_words(std::span<const std::byte> source) noexcept;

}  // namespace cuvmm::emulator::host_kernels
