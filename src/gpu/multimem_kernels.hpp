// Kernels that touch multicast addresses: each is one multimem instruction over a range, or the barrier that is made of
// one. For GPUs (multimem_kernels.cu) and for the emulated driver (emulator/kernels/multimem_kernels.cpp).
//
// Content is moved in words of 8 bytes, from and to addresses that are multiples of 16; `words` is even.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "driver/abi.hpp"

namespace cuvmm::gpu {

// multimem.st: the words at `source` go to the memory of all devices.
struct MultimemStore {
  static constexpr std::string_view kernel = "cuvmm_multimem_store";
  abi::CUdeviceptr multicast;
  abi::CUdeviceptr source;
  std::uint64_t words;
};

// multimem.ld_reduce.add: the sums, modulo 2^64, of the words in the memory of all devices go to `destination`.
struct MultimemSum {
  static constexpr std::string_view kernel = "cuvmm_multimem_sum";
  abi::CUdeviceptr multicast;
  abi::CUdeviceptr destination;
  std::uint64_t words;
};

// multimem.red.add: the words at `source` are added to those in the memory of all devices.
struct MultimemAdd {
  static constexpr std::string_view kernel = "cuvmm_multimem_add";
  abi::CUdeviceptr multicast;
  abi::CUdeviceptr source;
  std::uint64_t words;
};

// multimem.ld_reduce.add.acc::f32 of bfloat16: each word holds four values, added in single precision and rounded once.
struct MultimemSumBfloat16 {
  static constexpr std::string_view kernel = "cuvmm_multimem_sum_bf16";
  abi::CUdeviceptr multicast;
  abi::CUdeviceptr destination;
  std::uint64_t words;
};

// As MultimemStore; and within the same kernel, behind the proxy fence, the words go on to `destination` as they are
// then seen at `own`, where this device's memory lies.
struct MultimemAlias {
  static constexpr std::string_view kernel = "cuvmm_multimem_alias";
  abi::CUdeviceptr multicast;
  abi::CUdeviceptr source;
  abi::CUdeviceptr own;
  abi::CUdeviceptr destination;
  std::uint64_t words;
};

// A barrier between ranks. Adds 1 to the 32-bit counter at `counters` in the memory of all devices (multimem.red), and
// waits until that in this device's memory, at `own`, has come to `expected`, or until it has looked `most_polls`
// times. The 32-bit value at `left` becomes what the counter was then. One thread suffices.
struct MultimemMeet {
  static constexpr std::string_view kernel = "cuvmm_multimem_meet";
  abi::CUdeviceptr counters;
  abi::CUdeviceptr own;
  std::uint64_t expected;
  std::uint64_t most_polls;
  abi::CUdeviceptr left;
};

inline constexpr std::array multimem_kernel_names{MultimemStore::kernel, MultimemSum::kernel,
                                                  MultimemAdd::kernel,   MultimemSumBfloat16::kernel,
                                                  MultimemAlias::kernel, MultimemMeet::kernel};

// Pointers to the arguments, which must live until the launch was made.
inline std::array<void*, 3> arguments(MultimemStore& p) noexcept {
  return {&p.multicast, &p.source, &p.words};
}
inline std::array<void*, 3> arguments(MultimemSum& p) noexcept {
  return {&p.multicast, &p.destination, &p.words};
}
inline std::array<void*, 3> arguments(MultimemAdd& p) noexcept {
  return {&p.multicast, &p.source, &p.words};
}
inline std::array<void*, 3> arguments(MultimemSumBfloat16& p) noexcept {
  return {&p.multicast, &p.destination, &p.words};
}
inline std::array<void*, 5> arguments(MultimemAlias& p) noexcept {
  return {&p.multicast, &p.source, &p.own, &p.destination, &p.words};
}
inline std::array<void*, 5> arguments(MultimemMeet& p) noexcept {
  return {&p.counters, &p.own, &p.expected, &p.most_polls, &p.left};
}

// What cuModuleLoadData is given: as gpu::kernel_image(), for sm_90 and newer.
[[nodiscard]] std::span<const std::byte> multimem_image() noexcept;

}  // namespace cuvmm::gpu
