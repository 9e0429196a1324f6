// Sums of packs and of single elements, in the order of ranks and in one precision, so that whoever adds the same
// values gets the same bits.
#pragma once

#include <cstdint>

#include "cuvmm/gpu/float16.cuh"
#include "cuvmm/gpu/memory_policy.cuh"

namespace cuvmm::gpu {

// How values of a type are added: 16-bit ones in single precision, rounded once at the end, as multimem does; integers
// modulo the size of their type.
template <class T>
struct Summation;

template <>
struct Summation<float> {
  using Sum = float;
  CUVMM_HOST_DEVICE static Sum widen(float value) noexcept { return value; }
  CUVMM_HOST_DEVICE static float narrow(Sum sum) noexcept { return sum; }
};
template <>
struct Summation<float16> {
  using Sum = float;
  CUVMM_HOST_DEVICE static Sum widen(float16 value) noexcept { return value.to_float(); }
  CUVMM_HOST_DEVICE static float16 narrow(Sum sum) noexcept { return float16::from(sum); }
};
template <>
struct Summation<bfloat16> {
  using Sum = float;
  CUVMM_HOST_DEVICE static Sum widen(bfloat16 value) noexcept { return value.to_float(); }
  CUVMM_HOST_DEVICE static bfloat16 narrow(Sum sum) noexcept { return bfloat16::from(sum); }
};
template <>
struct Summation<std::int32_t> {
  using Sum = std::uint32_t;
  CUVMM_HOST_DEVICE static Sum widen(std::int32_t value) noexcept { return static_cast<Sum>(value); }
  CUVMM_HOST_DEVICE static std::int32_t narrow(Sum sum) noexcept { return static_cast<std::int32_t>(sum); }
};
template <>
struct Summation<std::uint32_t> {
  using Sum = std::uint32_t;
  CUVMM_HOST_DEVICE static Sum widen(std::uint32_t value) noexcept { return value; }
  CUVMM_HOST_DEVICE static std::uint32_t narrow(Sum sum) noexcept { return sum; }
};
template <>
struct Summation<std::uint64_t> {
  using Sum = std::uint64_t;
  CUVMM_HOST_DEVICE static Sum widen(std::uint64_t value) noexcept { return value; }
  CUVMM_HOST_DEVICE static std::uint64_t narrow(Sum sum) noexcept { return sum; }
};

// How many values of a type there is room for in a Raw: a Pack, or the 8 bytes of a Line.
template <class Raw, class T>
inline constexpr int values_in = static_cast<int>(sizeof(Raw) / sizeof(T));  // NOLINT(bugprone-sizeof-expression)

// The sum of that many values.
template <class T, class Raw = Pack>
class RunningSum {
 public:
  // Before anything is added: a sum of negative zeros is one, too.
  CUVMM_HOST_DEVICE void start(const Raw& first) noexcept {
    const auto values = bits_as<Values>(first);
    CUVMM_UNROLL
    for (int i = 0; i < width; ++i) sums_[i] = Summation<T>::widen(values.values[i]);
  }
  CUVMM_HOST_DEVICE void add(const Raw& more) noexcept {
    const auto values = bits_as<Values>(more);
    CUVMM_UNROLL
    for (int i = 0; i < width; ++i) sums_[i] += Summation<T>::widen(values.values[i]);
  }
  [[nodiscard]] CUVMM_HOST_DEVICE Raw result() const noexcept {
    Values values;
    CUVMM_UNROLL
    for (int i = 0; i < width; ++i) values.values[i] = Summation<T>::narrow(sums_[i]);
    return bits_as<Raw>(values);
  }

 private:
  static constexpr int width = values_in<Raw, T>;
  using Values = Vector<T, width>;
  typename Summation<T>::Sum sums_[width];
};

namespace detail {

// As many values as there is room for in a Raw, from any address that is a multiple of their size; what is beyond the
// `left` ones that there are is zeros.
template <class Raw, class T, class Memory>
CUVMM_DEVICE inline Raw load_raw(const Memory& memory, const T* values, std::uint64_t left) {
  constexpr int width = values_in<Raw, T>;
  if (left >= width && reinterpret_cast<std::uintptr_t>(values) % sizeof(Raw) == 0)
    return memory.load(reinterpret_cast<const Raw*>(values));
  Vector<T, width> some{};
  CUVMM_UNROLL
  for (int i = 0; i < width; ++i)
    if (static_cast<std::uint64_t>(i) < left) some.values[i] = memory.load(values + i);
  return bits_as<Raw>(some);
}
template <class T, class Raw, class Memory>
CUVMM_DEVICE inline void store_raw(const Memory& memory, T* values, std::uint64_t left, const Raw& raw) {
  constexpr int width = values_in<Raw, T>;
  if (left >= width && reinterpret_cast<std::uintptr_t>(values) % sizeof(Raw) == 0)
    return memory.store(reinterpret_cast<Raw*>(values), raw);
  const auto some = bits_as<Vector<T, width>>(raw);
  CUVMM_UNROLL
  for (int i = 0; i < width; ++i)
    if (static_cast<std::uint64_t>(i) < left) memory.store(values + i, some.values[i]);
}

}  // namespace detail

// The sum over all devices' memory of one pack at a multicast address, which the hardware adds: in an order that is
// not told, 16-bit values in single precision.
template <class T, class Memory>
CUVMM_DEVICE inline Pack multimem_sum(const Memory& memory, const Pack* multicast) {
  constexpr auto add = Operation::add;
  constexpr auto relaxed = Order::relaxed;
  constexpr auto system = Scope::system;
  if constexpr (MultimemType<T>::kind == detail::TypeKind::half) {
    const auto* const vector = reinterpret_cast<const Vector<Pair<T>, 4>*>(multicast);
    return bits_as<Pack>(memory.template multimem_load_reduce<add, relaxed, system, Accumulation::single>(vector));
  } else if constexpr (MultimemType<T>::kind == detail::TypeKind::single) {
    const auto* const vector = reinterpret_cast<const Vector<T, 4>*>(multicast);
    return bits_as<Pack>(memory.template multimem_load_reduce<add, relaxed, system, Accumulation::own>(vector));
  } else {
    constexpr int width = values_in<Pack, T>;
    Vector<T, width> sums;  // NOLINT(*-member-init): filled below
    CUVMM_UNROLL
    for (int i = 0; i < width; ++i)
      sums.values[i] = memory.template multimem_load_reduce<add, relaxed, system, Accumulation::own>(
          reinterpret_cast<const T*>(multicast) + i);
    return bits_as<Pack>(sums);
  }
}

// Writes one pack to all devices' memory.
template <class Memory>
CUVMM_DEVICE inline void multimem_write(const Memory& memory, Pack* multicast, const Pack& pack) {
  using Floats = Vector<float, 4>;  // any content: 16 bytes at once are there for floating-point types only
  memory.template multimem_store<Order::relaxed, Scope::system>(reinterpret_cast<Floats*>(multicast),
                                                                bits_as<Floats>(pack));
}

}  // namespace cuvmm::gpu
