// What collectives and barriers need of the memory between ranks, as a policy: the same code runs over GpuMemory
// (gpu_memory.cuh: PTX) and over HostMemory (host_memory.cuh: ordinary memory of the CPU, threads as ranks).
//
// A policy `memory` and pointers into the ranks' memory offer:
//
//   memory.load(p), memory.store(p, v)          plain accesses; of Pack 16 bytes at once
//   memory.load_volatile(p)                     of 16 bytes, never merged with another load, ordered with none
//   memory.load_acquire(p), store_release(p, v) 32 bits, at system scope
//   memory.load_line(p), store_line(p, line)    two halves of 64 bits, each seen whole or not at all; relaxed
//   memory.fetch_or(p, bits)                    32 bits, relaxed, atomic within the device
//   memory.template multimem_load_reduce<operation, order, scope, accumulation>(p)
//   memory.template multimem_store<order, scope>(p, v)
//   memory.template multimem_reduce<operation, order, scope>(p, v)
//                                               at a multicast address, with the rules of multimem_forms.cuh
//   memory.alias_fence()                        orders what this thread did through one address of some memory before
//                                               what it does through another (proxy_fence.cuh)
//   memory.nanoseconds()                        a clock that only grows
//   memory.pause()                              a look for something was in vain
//
// and a block of threads, `block`, offers
//
//   block.thread(), block.threads()             which thread calls, of how many
//   block.index(), block.count()                which block it is in, of how many
//   block.synchronize()                         all threads of the block meet, and see what each did before
//   block.any(condition)                        they meet, and learn whether the condition held for one of them
//
// Blocks of one rank are independent of one another; a block meets those of the same index of other ranks.
#pragma once

#include <cstdint>

#include "cuvmm/gpu/multimem_forms.cuh"

namespace cuvmm::gpu {

// 16 bytes of any content: what one access moves at most.
using Pack = Vector<std::uint32_t, 4>;

// 8 bytes of content, each half beside a flag that tells whether it has arrived, so that no other signal is needed.
struct alignas(16) Line {
  std::uint32_t first;
  std::uint32_t first_flag;
  std::uint32_t second;
  std::uint32_t second_flag;
};

#if !defined(__CUDACC__) && defined(__cpp_concepts)
template <class Memory>
concept MemoryPolicy = requires(const Memory& memory, Pack pack, const Pack* packs, Pack* into, std::uint32_t* word,
                                Line line, Line* lines, const Float16Pair* multicast) {
  {memory.load(packs)};
  {memory.store(into, pack)};
  {memory.load_volatile(packs)};
  {memory.load_acquire(word)};
  {memory.store_release(word, 0U)};
  {memory.load_line(lines)};
  {memory.store_line(lines, line)};
  {memory.fetch_or(word, 0U)};
  {memory.template multimem_load_reduce<Operation::add, Order::relaxed, Scope::system, Accumulation::single>(
      multicast)};
  {memory.template multimem_store<Order::relaxed, Scope::system>(word, 0U)};
  {memory.template multimem_reduce<Operation::add, Order::release, Scope::system>(word, 0U)};
  {memory.alias_fence()};
  {memory.nanoseconds()};
};
#endif

}  // namespace cuvmm::gpu
