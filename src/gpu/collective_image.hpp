// The image of the collectives' kernels, embedded in the program: what cuModuleLoadData is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cuvmm/gpu/float16.cuh"

namespace cuvmm::gpu {

// An uncompressed fatbin (PTX for compute_90, machine code for sm_90) where the project was built with nvcc; else a
// text that only names the entries, refused by a CUDA driver. Whether it holds code: kernel_image_runs_on_gpus().
// Aligned to 8 bytes and followed by a zero byte that is not part of the span. Lives as long as the process.
[[nodiscard]] std::span<const std::byte> collective_image() noexcept;

// The ways of all-reduce (cuvmm/gpu/all_reduce.cuh, staged_all_reduce.cuh and flagged_all_reduce.cuh).
enum class AllReduceWay {
  flagged,
  staged_one_shot,
  staged_two_shot,
  one_shot,
  two_shot,
  multimem_one_shot,
  multimem_two_shot,
};

[[nodiscard]] constexpr std::string_view name_of(AllReduceWay way) noexcept {
  switch (way) {
    case AllReduceWay::flagged:
      return "flagged";
    case AllReduceWay::staged_one_shot:
      return "staged_one_shot";
    case AllReduceWay::staged_two_shot:
      return "staged_two_shot";
    case AllReduceWay::one_shot:
      return "one_shot";
    case AllReduceWay::two_shot:
      return "two_shot";
    case AllReduceWay::multimem_one_shot:
      return "multimem_one_shot";
    case AllReduceWay::multimem_two_shot:
      return "multimem_two_shot";
  }
  return "";
}

// The types of all-reduce, as kernels' names have them.
template <class T>
inline constexpr std::string_view element_name;
template <>
inline constexpr std::string_view element_name<float> = "f32";
template <>
inline constexpr std::string_view element_name<float16> = "f16";
template <>
inline constexpr std::string_view element_name<bfloat16> = "bf16";
template <>
inline constexpr std::string_view element_name<std::int32_t> = "s32";
template <>
inline constexpr std::string_view element_name<std::uint32_t> = "u32";
template <>
inline constexpr std::string_view element_name<std::uint64_t> = "u64";

// The kernel that takes an AllReduce<T>.
template <class T>
[[nodiscard]] std::string all_reduce_kernel(AllReduceWay way) {
  return "cuvmm_all_reduce_" + std::string(name_of(way)) + "_" + std::string(element_name<T>);
}

// The kernels that take a Broadcast, an AllGather and a RankBarrier.
inline constexpr std::string_view broadcast_kernel = "cuvmm_broadcast";
inline constexpr std::string_view multimem_broadcast_kernel = "cuvmm_multimem_broadcast";
inline constexpr std::string_view all_gather_kernel = "cuvmm_all_gather";
inline constexpr std::string_view multimem_all_gather_kernel = "cuvmm_multimem_all_gather";
inline constexpr std::string_view rank_barrier_kernel = "cuvmm_rank_barrier";
inline constexpr std::string_view multimem_rank_barrier_kernel = "cuvmm_multimem_rank_barrier";

// Threads of a block at most.
inline constexpr unsigned most_collective_threads = 512;

}  // namespace cuvmm::gpu
