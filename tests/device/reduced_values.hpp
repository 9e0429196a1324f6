// What tests have all-reduce add up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuvmm/gpu/float16.cuh"

namespace cuvmm::gpu::test {

// Fractions whose sum single precision may have to round, integers that run over.
template <class T>
T value_at(std::uint32_t rank, std::size_t index) {
  const std::uint32_t mixed = static_cast<std::uint32_t>(index + 1) * 2654435761U + rank * 40503U * 65537U;
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(std::uint64_t{mixed} << 32 | (mixed ^ 0x5A5A5A5AU));
  else if constexpr (std::is_same_v<T, float>)
    return static_cast<float>(static_cast<std::int32_t>(mixed) >> 7) * 0x1p-20F;
  else
    return T::from(static_cast<float>(static_cast<std::int32_t>(mixed) >> 7) * 0x1p-20F);
}

}  // namespace cuvmm::gpu::test
