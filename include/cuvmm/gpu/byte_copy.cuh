// Copies of bytes by all threads of a grid, 16 at once where the alignment of both ends allows it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuvmm/gpu/collective_team.cuh"

namespace cuvmm::gpu::detail {

inline constexpr int copied_at_once = 8;

template <class Unit, class Memory, class Block>
CUVMM_DEVICE inline void copy_units(const Memory& memory, const Block& block, Unit* to, const Unit* from,
                                    std::uint64_t count) {
  for_each_batch<copied_at_once>(block, {0, count}, [&](const auto& batch) {
    Unit units[copied_at_once];
    CUVMM_UNROLL
    for (int i = 0; i < copied_at_once; ++i)
      if (batch.holds(i)) units[i] = memory.load(from + batch.index(i));
    CUVMM_UNROLL
    for (int i = 0; i < copied_at_once; ++i)
      if (batch.holds(i)) memory.store(to + batch.index(i), units[i]);
  });
}

// `bytes` bytes as a head of single bytes, units of `Unit`, and a tail of single bytes; both ends must be aligned
// alike.
template <class Unit, class Memory, class Block>
CUVMM_DEVICE inline void copy_aligned_alike(const Memory& memory, const Block& block, std::uint8_t* to,
                                            const std::uint8_t* from, std::uint64_t bytes) {
  const std::uint64_t until_aligned =
      (sizeof(Unit) - reinterpret_cast<std::uintptr_t>(to) % sizeof(Unit)) % sizeof(Unit);
  const std::uint64_t head = until_aligned < bytes ? until_aligned : bytes;
  const std::uint64_t units = (bytes - head) / sizeof(Unit);
  copy_units(memory, block, reinterpret_cast<Unit*>(to + head), reinterpret_cast<const Unit*>(from + head), units);
  const std::uint64_t behind = head + units * sizeof(Unit);
  copy_units(memory, block, to, from, head);
  copy_units(memory, block, to + behind, from + behind, bytes - behind);
}

[[nodiscard]] CUVMM_HOST_DEVICE inline bool are_aligned_alike(const void* one, const void* other,
                                                              std::uintptr_t bytes) noexcept {
  return (reinterpret_cast<std::uintptr_t>(one) ^ reinterpret_cast<std::uintptr_t>(other)) % bytes == 0;
}

template <class Memory, class Block>
CUVMM_DEVICE inline void copy_bytes(const Memory& memory, const Block& block, std::uint8_t* to,
                                    const std::uint8_t* from, std::uint64_t bytes) {
  if (to == from) return;
  if (are_aligned_alike(to, from, sizeof(Pack)))
    copy_aligned_alike<Pack>(memory, block, to, from, bytes);
  else if (are_aligned_alike(to, from, sizeof(std::uint32_t)))
    copy_aligned_alike<std::uint32_t>(memory, block, to, from, bytes);
  else
    copy_units(memory, block, to, from, bytes);
}

// One pack from any address.
template <class Memory>
CUVMM_DEVICE inline Pack load_unaligned(const Memory& memory, const std::uint8_t* from) {
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(Pack) == 0)
    return memory.load(reinterpret_cast<const Pack*>(from));
  Vector<std::uint8_t, sizeof(Pack)> bytes{};
  CUVMM_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof(Pack)); ++i) bytes.values[i] = memory.load(from + i);
  return bits_as<Pack>(bytes);
}

// Copies to the memory of all ranks: whole packs through the multicast address, the bytes before and behind, which
// multimem cannot access singly, to each rank by its own.
template <class Memory, class Block>
CUVMM_DEVICE inline void copy_bytes_to_all(const Memory& memory, const Block& block, std::uint32_t ranks,
                                           std::uint8_t* const* outputs, std::uint8_t* multicast, std::uint64_t offset,
                                           const std::uint8_t* from, std::uint64_t bytes) {
  std::uint8_t* const to = multicast + offset;
  const std::uint64_t until_aligned =
      (sizeof(Pack) - reinterpret_cast<std::uintptr_t>(to) % sizeof(Pack)) % sizeof(Pack);
  const std::uint64_t head = until_aligned < bytes ? until_aligned : bytes;
  const std::uint64_t packs = (bytes - head) / sizeof(Pack);
  for_each_index(block, {0, packs}, [&](std::uint64_t i) {
    const std::uint64_t at = head + i * sizeof(Pack);
    const Pack pack = load_unaligned(memory, from + at);
    memory.template multimem_store<Order::relaxed, Scope::system>(reinterpret_cast<Vector<float, 4>*>(to + at),
                                                                  bits_as<Vector<float, 4>>(pack));
  });
  const std::uint64_t behind = head + packs * sizeof(Pack);
  for_each_index(block, {0, head + (bytes - behind)}, [&](std::uint64_t i) {
    const std::uint64_t at = i < head ? i : behind + (i - head);
    const std::uint8_t byte = memory.load(from + at);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) memory.store(outputs[rank] + offset + at, byte);
  });
}

}  // namespace cuvmm::gpu::detail
