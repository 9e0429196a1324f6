// What stands behind multicast addresses on a CPU, where no hardware combines or multiplies accesses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuvmm/gpu/multimem_forms.cuh"

namespace cuvmm::gpu {

enum class MultimemElement : unsigned char {
  u32,
  u64,
  s32,
  s64,
  b32,
  b64,
  f16,
  bf16,
  f16x2,
  bf16x2,
  f32,
  f64,
};

template <class T>
inline constexpr MultimemElement multimem_element = MultimemElement::u32;
template <>
inline constexpr MultimemElement multimem_element<std::uint64_t> = MultimemElement::u64;
template <>
inline constexpr MultimemElement multimem_element<std::int32_t> = MultimemElement::s32;
template <>
inline constexpr MultimemElement multimem_element<std::int64_t> = MultimemElement::s64;
template <>
inline constexpr MultimemElement multimem_element<Bits32> = MultimemElement::b32;
template <>
inline constexpr MultimemElement multimem_element<Bits64> = MultimemElement::b64;
template <>
inline constexpr MultimemElement multimem_element<float16> = MultimemElement::f16;
template <>
inline constexpr MultimemElement multimem_element<bfloat16> = MultimemElement::bf16;
template <>
inline constexpr MultimemElement multimem_element<Float16Pair> = MultimemElement::f16x2;
template <>
inline constexpr MultimemElement multimem_element<BFloat16Pair> = MultimemElement::bf16x2;
template <>
inline constexpr MultimemElement multimem_element<float> = MultimemElement::f32;
template <>
inline constexpr MultimemElement multimem_element<double> = MultimemElement::f64;

// One access, which multimem_forms.cuh has let pass. `operation` and `accumulation` mean nothing to a store.
struct MultimemAccess {
  MultimemElement element;
  int width;  // how many of them, beside one another
  Operation operation;
  Order order;
  Scope scope;
  Accumulation accumulation;
};

// Called from any thread. An address that is none of its own is for the implementation to refuse.
class HostMulticast {
 public:
  HostMulticast() = default;
  HostMulticast(const HostMulticast&) = delete;
  HostMulticast& operator=(const HostMulticast&) = delete;
  HostMulticast(HostMulticast&&) = delete;
  HostMulticast& operator=(HostMulticast&&) = delete;
  virtual ~HostMulticast() = default;

  virtual void load_reduce(const MultimemAccess& access, const void* multicast, void* result) const = 0;
  virtual void store(const MultimemAccess& access, void* multicast, const void* value) const = 0;
  virtual void reduce(const MultimemAccess& access, void* multicast, const void* value) const = 0;
};

}  // namespace cuvmm::gpu
