// Names and arguments of the project's kernels, shared by everyone who launches one and by the emulated driver, which
// runs them as host functions.
//
// Each kernel has a structure of its arguments in their order; `arguments(parameters)` gives what cuLaunchKernel takes
// as kernel_params.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "driver/abi.hpp"

namespace cuvmm::gpu {

// Writes `pattern`'s eight bytes, lowest first, again and again from `destination` on.
struct FillParameters {
  static constexpr std::string_view kernel = "cuvmm_fill";
  abi::CUdeviceptr destination;
  std::uint64_t bytes;
  std::uint64_t pattern;
};

// Copies bytes between ranges that do not overlap.
struct CopyParameters {
  static constexpr std::string_view kernel = "cuvmm_copy";
  abi::CUdeviceptr destination;
  abi::CUdeviceptr source;
  std::uint64_t bytes;
};

// Adds the checksum (gpu/checksum.hpp) of the bytes to the 64-bit value at `sum`, their first word counted as word
// `first_word` of the whole content: the pieces of a content, each but the last of whole words, add up to its checksum.
struct ChecksumParameters {
  static constexpr std::string_view kernel = "cuvmm_checksum";
  abi::CUdeviceptr source;
  std::uint64_t bytes;
  std::uint64_t first_word;
  abi::CUdeviceptr sum;
};

// y[i] = factor * x[i] + y[i], rounded once, for `count` values of type float.
struct ScaleAddParameters {
  static constexpr std::string_view kernel = "cuvmm_scale_add";
  abi::CUdeviceptr y;
  abi::CUdeviceptr x;
  float factor;
  std::uint64_t count;
};

// Waits until the 32-bit value at `flag` is not zero, or until it has looked `most_polls` times. One thread suffices.
struct SpinParameters {
  static constexpr std::string_view kernel = "cuvmm_spin";
  abi::CUdeviceptr flag;
  std::uint64_t most_polls;
};

// Copies the bytes at `source` to `written`, and adds the checksum of what is then seen at `read`, another address of
// the same memory, to the 64-bit value at `sum`: a store, a fence and a load of two addresses within one kernel
// (cuvmm/gpu/proxy_fence.cuh). `first_word` as for cuvmm_checksum.
struct AliasParameters {
  static constexpr std::string_view kernel = "cuvmm_alias";
  abi::CUdeviceptr written;
  abi::CUdeviceptr source;
  abi::CUdeviceptr read;
  std::uint64_t bytes;
  std::uint64_t first_word;
  abi::CUdeviceptr sum;
};

// What cuvmm_read shares with who launches it: 24 bytes of device memory, all 0 before.
struct ReadState {
  std::uint64_t begun;  // tiles
  std::uint64_t sum;    // of all 8-byte words that were read, modulo 2^64; complete when the kernel is done
  std::uint32_t stop;   // no tile is begun once this is not 0
  std::uint32_t unused;
};

// Reads `bytes` bytes tile by tile, and from the beginning again, until it has read `tiles` tiles or is told to stop:
// as fast as the memory is, since little else is done. The addresses and `tile_bytes` are multiples of 16, `bytes` is
// one of `tile_bytes`, and not 0. The 64-bit value at `progress`, which may be memory of the host, is about how many
// tiles were read: it is set after every 64th. The threads of a block work on one tile, and are a multiple of 32.
struct ReadParameters {
  static constexpr std::string_view kernel = "cuvmm_read";
  abi::CUdeviceptr source;
  std::uint64_t bytes;
  std::uint64_t tile_bytes;
  std::uint64_t tiles;
  abi::CUdeviceptr state;
  abi::CUdeviceptr progress;
};

inline constexpr std::array kernel_names{FillParameters::kernel,     CopyParameters::kernel, ChecksumParameters::kernel,
                                         ScaleAddParameters::kernel, SpinParameters::kernel, AliasParameters::kernel,
                                         ReadParameters::kernel};

// Pointers to the arguments, which must live until the launch was made.
inline std::array<void*, 3> arguments(FillParameters& p) noexcept {
  return {&p.destination, &p.bytes, &p.pattern};
}
inline std::array<void*, 3> arguments(CopyParameters& p) noexcept {
  return {&p.destination, &p.source, &p.bytes};
}
inline std::array<void*, 4> arguments(ChecksumParameters& p) noexcept {
  return {&p.source, &p.bytes, &p.first_word, &p.sum};
}
inline std::array<void*, 4> arguments(ScaleAddParameters& p) noexcept {
  return {&p.y, &p.x, &p.factor, &p.count};
}
inline std::array<void*, 2> arguments(SpinParameters& p) noexcept {
  return {&p.flag, &p.most_polls};
}
inline std::array<void*, 6> arguments(AliasParameters& p) noexcept {
  return {&p.written, &p.source, &p.read, &p.bytes, &p.first_word, &p.sum};
}
inline std::array<void*, 6> arguments(ReadParameters& p) noexcept {
  return {&p.source, &p.bytes, &p.tile_bytes, &p.tiles, &p.state, &p.progress};
}

// A one-dimensional launch. The kernels stride over the grid, so that any shape is right; this one is fast.
struct LaunchShape {
  unsigned int blocks;
  unsigned int threads_per_block;
};

// A shape for that many elements (words, or values): enough threads to fill a GPU, no more than there is work for.
constexpr LaunchShape launch_shape(std::uint64_t elements) noexcept {
  constexpr unsigned int threads = 256;
  constexpr std::uint64_t most_blocks = 4096;
  const std::uint64_t wanted = elements / threads + 1;
  return {static_cast<unsigned int>(std::min(wanted, most_blocks)), threads};
}

}  // namespace cuvmm::gpu
