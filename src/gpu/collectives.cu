// The collectives as kernels (cuvmm/gpu/*.cuh), named as gpu/collective_kernels.hpp tells: one argument, the structure
// of the collective's arguments. They stay in the constant bank, where a rank's pointers can be picked by index.
#include "cuvmm/gpu/all_gather.cuh"
#include "cuvmm/gpu/all_reduce.cuh"
#include "cuvmm/gpu/broadcast.cuh"
#include "cuvmm/gpu/flagged_all_reduce.cuh"
#include "cuvmm/gpu/gpu_memory.cuh"
#include "cuvmm/gpu/rank_barrier.cuh"
#include "cuvmm/gpu/staged_all_reduce.cuh"

namespace {

using namespace cuvmm::gpu;

constexpr int most_threads = 512;  // of a block

}  // namespace

#define CUVMM_COLLECTIVE(name, function, Arguments)                                                         \
  extern "C" __global__ void __launch_bounds__(most_threads) name(const __grid_constant__ Arguments call) { \
    function(GpuMemory{}, GpuBlock{}, call);                                                                \
  }

#define CUVMM_ALL_REDUCES(suffix, T)                                                                        \
  CUVMM_COLLECTIVE(cuvmm_all_reduce_flagged_##suffix, all_reduce_flagged, AllReduce<T>)                     \
  CUVMM_COLLECTIVE(cuvmm_all_reduce_staged_one_shot_##suffix, all_reduce_staged_one_shot, AllReduce<T>)     \
  CUVMM_COLLECTIVE(cuvmm_all_reduce_staged_two_shot_##suffix, all_reduce_staged_two_shot, AllReduce<T>)     \
  CUVMM_COLLECTIVE(cuvmm_all_reduce_one_shot_##suffix, all_reduce_one_shot, AllReduce<T>)                   \
  CUVMM_COLLECTIVE(cuvmm_all_reduce_two_shot_##suffix, all_reduce_two_shot, AllReduce<T>)                   \
  CUVMM_COLLECTIVE(cuvmm_all_reduce_multimem_one_shot_##suffix, all_reduce_multimem_one_shot, AllReduce<T>) \
  CUVMM_COLLECTIVE(cuvmm_all_reduce_multimem_two_shot_##suffix, all_reduce_multimem_two_shot, AllReduce<T>)

CUVMM_ALL_REDUCES(f32, float)
CUVMM_ALL_REDUCES(f16, float16)
CUVMM_ALL_REDUCES(bf16, bfloat16)
CUVMM_ALL_REDUCES(s32, std::int32_t)
CUVMM_ALL_REDUCES(u32, std::uint32_t)
CUVMM_ALL_REDUCES(u64, std::uint64_t)

CUVMM_COLLECTIVE(cuvmm_broadcast, broadcast, Broadcast)
CUVMM_COLLECTIVE(cuvmm_multimem_broadcast, multimem_broadcast, Broadcast)
CUVMM_COLLECTIVE(cuvmm_all_gather, all_gather, AllGather)
CUVMM_COLLECTIVE(cuvmm_multimem_all_gather, multimem_all_gather, AllGather)
CUVMM_COLLECTIVE(cuvmm_rank_barrier, rank_barrier, RankBarrier)
CUVMM_COLLECTIVE(cuvmm_multimem_rank_barrier, multimem_rank_barrier, RankBarrier)
