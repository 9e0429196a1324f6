// The two 16-bit floating-point types of collectives, for GPUs and CPUs alike.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuvmm/gpu/host_device.cuh"

namespace cuvmm::gpu {

// The same bytes as another type.
template <class To, class From>
CUVMM_HOST_DEVICE inline To bits_as(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From), "bits_as: both types must have the same size");
  To to;  // NOLINT(*-member-init): filled by the next line
  memcpy(&to, &from, sizeof(To));
  return to;
}

// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. Conversions are exact towards float and rounded to nearest,
// ties to even, from float; what is too large becomes an infinity, and every NaN the one that PTX calls canonical
// (0x7FFF). Plain bytes: may be copied, sent, and made of zeros.
struct float16 {
  std::uint16_t bits;

  [[nodiscard]] CUVMM_HOST_DEVICE static float16 from(float value) noexcept;
  [[nodiscard]] CUVMM_HOST_DEVICE float to_float() const noexcept;
};

// bfloat16: the upper half of a float, 1 sign, 8 exponent, 7 fraction bits. Conversions as for float16.
struct bfloat16 {
  std::uint16_t bits;

  [[nodiscard]] CUVMM_HOST_DEVICE static bfloat16 from(float value) noexcept;
  [[nodiscard]] CUVMM_HOST_DEVICE float to_float() const noexcept;
};

namespace detail {

inline constexpr std::uint32_t float_infinity_bits = 0x7F800000;
inline constexpr std::uint16_t canonical_nan_bits = 0x7FFF;

// `value` without its lowest `count` bits, rounded to nearest, ties to even; 0 < count < 32.
CUVMM_HOST_DEVICE constexpr std::uint32_t rounded_shift(std::uint32_t value, unsigned count) noexcept {
  const std::uint32_t half = std::uint32_t{1} << (count - 1);
  const std::uint32_t odd = value >> count & 1;
  return (value + (half - 1) + odd) >> count;
}

// Of the bits of a float that is neither negative nor NaN.
CUVMM_HOST_DEVICE constexpr std::uint32_t float16_magnitude(std::uint32_t bits) noexcept {
  constexpr std::uint32_t overflow = 0x477FF000;  // 65520, halfway between the largest float16 and the next power of 2
  constexpr std::uint32_t smallest_normal = 0x38800000;  // 2^-14
  constexpr std::uint32_t vanishing = 0x33000000;        // 2^-25, half of the smallest float16: a tie, goes to even
  if (bits >= overflow) return 0x7C00;
  // The rounding carries into the exponent where it must.
  if (bits >= smallest_normal) return rounded_shift(bits - 0x38000000, 13);
  if (bits <= vanishing) return 0;
  const std::uint32_t exponent = bits >> 23;
  const std::uint32_t fraction = (bits & 0x007FFFFF) | 0x00800000;
  return rounded_shift(fraction, 126 - exponent);
}

// The bits of the float that a float16 without its sign is.
CUVMM_HOST_DEVICE constexpr std::uint32_t float_magnitude(std::uint32_t bits) noexcept {
  const std::uint32_t exponent = bits >> 10;
  std::uint32_t fraction = bits & 0x3FF;
  if (exponent == 31) return float_infinity_bits | fraction << 13;
  if (exponent != 0) return (bits << 13) + 0x38000000;
  if (fraction == 0) return 0;
  std::uint32_t float_exponent = 113;  // of 2^-14
  while ((fraction & 0x400) == 0) {
    fraction <<= 1;
    --float_exponent;
  }
  return float_exponent << 23 | (fraction & 0x3FF) << 13;
}

}  // namespace detail

CUVMM_HOST_DEVICE inline float16 float16::from(float value) noexcept {
#ifdef __CUDA_ARCH__
  float16 converted;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(converted.bits) : "f"(value));
  return converted;
#else
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > detail::float_infinity_bits) return {detail::canonical_nan_bits};
  return {static_cast<std::uint16_t>((bits >> 16 & 0x8000) | detail::float16_magnitude(magnitude))};
#endif
}

CUVMM_HOST_DEVICE inline float float16::to_float() const noexcept {
#ifdef __CUDA_ARCH__
  float converted;
  asm("cvt.f32.f16 %0, %1;" : "=f"(converted) : "h"(bits));
  return converted;
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  return bits_as<float>(sign | detail::float_magnitude(bits & 0x7FFFU));
#endif
}

CUVMM_HOST_DEVICE inline bfloat16 bfloat16::from(float value) noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  bfloat16 converted;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(converted.bits) : "f"(value));
  return converted;
#else
  const auto bits = bits_as<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > detail::float_infinity_bits) return {detail::canonical_nan_bits};
  return {static_cast<std::uint16_t>(detail::rounded_shift(bits, 16))};
#endif
}

CUVMM_HOST_DEVICE inline float bfloat16::to_float() const noexcept {
  return bits_as<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace cuvmm::gpu
