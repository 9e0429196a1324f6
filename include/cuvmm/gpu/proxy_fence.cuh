// Ordering of accesses through several addresses of one memory, in device code.
#pragma once

namespace cuvmm::gpu {

// Orders this thread's accesses through different virtual addresses of the same memory (aliases, guide 4.16.5.3): what
// it wrote through one address before is seen through another afterwards. A device takes addresses for different
// memory and may serve a load through one of them before a store through the other; neither a barrier nor
// __threadfence() changes that.
//
// Between threads it has to lie on the way from the store to the load: store, proxy_fence_alias(), then what the two
// threads synchronise by (__syncthreads(), or a release and an acquire). Between kernels of one stream nothing is
// needed: a kernel's end orders all.
//
// PTX fence.proxy.alias: PTX ISA 7.5, sm_70 and newer. Also a barrier for the compiler.
__device__ inline void proxy_fence_alias() {
  asm volatile("fence.proxy.alias;" ::: "memory");
}

}  // namespace cuvmm::gpu
