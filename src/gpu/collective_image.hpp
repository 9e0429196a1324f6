// The image of the collectives' kernels, embedded in the program: what cuModuleLoadData is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cuvmm/gpu/all_reduce_way.hpp"
#include "cuvmm/gpu/float16.cuh"

namespace cuvmm::gpu {

// An uncompressed fatbin (PTX for compute_90, machine code for sm_90) where the project was built with nvcc; else a
// text that only names the entries, refused by a CUDA driver. Whether it holds code: kernel_image_runs_on_gpus().
// Aligned to 8 bytes and followed by a zero byte that is not part of the span. Lives as long as the process.
[[nodiscard]] std::span<const std::byte> collective_image() noexcept;

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
