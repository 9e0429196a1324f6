// The kernels of multimem_kernels.hpp for GPUs. All loops stride over the grid, so that any launch shape is right.
#include <cstdint>

#include "cuvmm/gpu/multimem.cuh"
#include "cuvmm/gpu/proxy_fence.cuh"

namespace {

using namespace cuvmm::gpu;
using Word = std::uint64_t;

__device__ Word first_index() {
  return static_cast<Word>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ Word stride() {
  return static_cast<Word>(gridDim.x) * blockDim.x;
}

// 16 bytes of any content, as the widest store takes them.
using Four = Vector<float, 4>;

__device__ std::uint32_t load_acquire(const std::uint32_t* address) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

}  // namespace

extern "C" __global__ void cuvmm_multimem_store(Four* multicast, const Four* source, Word words) {
  for (Word index = first_index(); index < words / 2; index += stride())
    multimem_store(multicast + index, source[index]);
}

extern "C" __global__ void cuvmm_multimem_sum(const Word* multicast, Word* destination, Word words) {
  for (Word index = first_index(); index < words; index += stride())
    destination[index] = multimem_load_reduce<Operation::add>(multicast + index);
}

extern "C" __global__ void cuvmm_multimem_add(Word* multicast, const Word* source, Word words) {
  for (Word index = first_index(); index < words; index += stride())
    multimem_reduce<Operation::add>(multicast + index, source[index]);
}

extern "C" __global__ void cuvmm_multimem_sum_bf16(const Vector<BFloat16Pair, 4>* multicast,
                                                   Vector<BFloat16Pair, 4>* destination, Word words) {
  for (Word index = first_index(); index < words / 2; index += stride())
    destination[index] =
        multimem_load_reduce<Operation::add, Order::relaxed, Scope::system, Accumulation::single>(multicast + index);
}

// Each thread reads what it wrote itself, through the other address.
extern "C" __global__ void cuvmm_multimem_alias(Four* multicast, const Four* source, const volatile Word* own,
                                                Word* destination, Word words) {
  for (Word index = first_index(); index < words / 2; index += stride()) {
    multimem_store(multicast + index, source[index]);
    proxy_fence_alias();
    destination[2 * index] = own[2 * index];
    destination[2 * index + 1] = own[2 * index + 1];
  }
}

extern "C" __global__ void cuvmm_multimem_meet(std::uint32_t* counters, const std::uint32_t* own, Word expected,
                                               Word most_polls, std::uint32_t* left) {
  if (first_index() != 0) return;
  proxy_fence_alias();
  multimem_reduce<Operation::add, Order::release>(counters, 1U);
  proxy_fence_alias();
  std::uint32_t seen = load_acquire(own);
  for (Word poll = 1; poll < most_polls && static_cast<std::int32_t>(seen - static_cast<std::uint32_t>(expected)) < 0;
       ++poll) {
    __nanosleep(100);
    seen = load_acquire(own);
  }
  *left = seen;
}
