// The memory policy of GPUs (memory_policy.cuh), in PTX. Device code for sm_90 and newer.
#pragma once

#include "cuvmm/gpu/memory_policy.cuh"
#include "cuvmm/gpu/multimem.cuh"
#include "cuvmm/gpu/proxy_fence.cuh"

namespace cuvmm::gpu {

struct GpuMemory {
  template <class T>
  __device__ T load(const T* address) const {
    return *address;
  }
  template <class T>
  __device__ void store(T* address, T value) const {
    *address = value;
  }
  // What collectives move is read once: it is kept out of the first-level cache.
  __device__ Pack load(const Pack* address) const {
    Pack pack;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pack.values[0]), "=r"(pack.values[1]), "=r"(pack.values[2]), "=r"(pack.values[3])
                 : "l"(address)
                 : "memory");
    return pack;
  }
  __device__ void store(Pack* address, const Pack& pack) const {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(pack.values[0]), "r"(pack.values[1]),
                 "r"(pack.values[2]), "r"(pack.values[3])
                 : "memory");
  }
  __device__ Pack load_volatile(const Pack* address) const {
    Pack pack;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pack.values[0]), "=r"(pack.values[1]), "=r"(pack.values[2]), "=r"(pack.values[3])
                 : "l"(address)
                 : "memory");
    return pack;
  }
  __device__ std::uint32_t load_acquire(const std::uint32_t* address) const {
    std::uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
  }
  __device__ void store_release(std::uint32_t* address, std::uint32_t value) const {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
  }
  __device__ Line load_line(const Line* address) const {
    std::uint64_t halves[2];
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(halves[0]), "=l"(halves[1])
                 : "l"(address)
                 : "memory");
    return {static_cast<std::uint32_t>(halves[0]), static_cast<std::uint32_t>(halves[0] >> 32),
            static_cast<std::uint32_t>(halves[1]), static_cast<std::uint32_t>(halves[1] >> 32)};
  }
  __device__ void store_line(Line* address, const Line& line) const {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(address),
                 "l"(std::uint64_t{line.first_flag} << 32 | line.first),
                 "l"(std::uint64_t{line.second_flag} << 32 | line.second)
                 : "memory");
  }
  __device__ void fetch_or(std::uint32_t* address, std::uint32_t bits) const {
    asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(address), "r"(bits) : "memory");
  }

  template <Operation operation, Order order, Scope scope, Accumulation accumulation, class Value>
  __device__ Value multimem_load_reduce(const Value* multicast) const {
    return gpu::multimem_load_reduce<operation, order, scope, accumulation>(multicast);
  }
  template <Order order, Scope scope, class Value>
  __device__ void multimem_store(Value* multicast, const Value& value) const {
    gpu::multimem_store<order, scope>(multicast, value);
  }
  template <Operation operation, Order order, Scope scope, class Value>
  __device__ void multimem_reduce(Value* multicast, const Value& value) const {
    gpu::multimem_reduce<operation, order, scope>(multicast, value);
  }

  __device__ void alias_fence() const { proxy_fence_alias(); }
  __device__ std::uint64_t nanoseconds() const {
    std::uint64_t time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
  }
  __device__ void pause() const {}  // waits are short, and every look is wanted
};

// The calling thread's place in a one-dimensional launch.
struct GpuBlock {
  __device__ std::uint32_t thread() const { return threadIdx.x; }
  __device__ std::uint32_t threads() const { return blockDim.x; }
  __device__ std::uint32_t index() const { return blockIdx.x; }
  __device__ std::uint32_t count() const { return gridDim.x; }
  __device__ void synchronize() const { __syncthreads(); }
  __device__ bool any(bool condition) const { return __syncthreads_or(condition ? 1 : 0) != 0; }
};

}  // namespace cuvmm::gpu
