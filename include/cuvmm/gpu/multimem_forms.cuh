// Which multimem accesses there are: types, operations, widths, orders and scopes that the PTX ISA has for sm_90, and a
// refusal in words, when the program is compiled, of every other combination. For device code (multimem.cuh), and for
// CPU code that stands in for it, so that what compiles for one compiles for the other.
//
// multimem accesses go to a multicast address (guide 4.16.4): `load_reduce` reads one value from the memory of every
// device and combines them, `store` writes to all, `reduce` combines a value into all. No other access may touch such
// an address.
#pragma once

#include <cstdint>

#include "cuvmm/gpu/float16.cuh"

namespace cuvmm::gpu {

enum class Operation { add, min, max, bit_and, bit_or, bit_xor };

// How an access is ordered with others. Weak accesses are not meant to meet others: they have no scope.
enum class Order { weak, relaxed, acquire, release };

// Among whom the order holds: threads of a block, of a cluster, of the device, of all devices and the host.
enum class Scope { none, block, cluster, device, system };

// In which precision a load_reduce of 16-bit floating-point values adds: in an unspecified one that is at least their
// own, or in single precision, rounded once at the end.
enum class Accumulation { own, single };

// 32 and 64 bits that are no number: PTX's types of bitwise operations.
struct Bits32 {
  std::uint32_t bits;
};
struct Bits64 {
  std::uint64_t bits;
};

// Two 16-bit values in one 32-bit word, the first in its lower half: PTX's f16x2 and bf16x2.
template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T first;
  T second;
};
using Float16Pair = Pair<float16>;
using BFloat16Pair = Pair<bfloat16>;

// `width` values beside one another that one access moves together, aligned as that needs.
template <class T, int width>
struct alignas(sizeof(T) * width) Vector {
  T values[width];
};

// What multimem knows of a type.
template <class T>
struct MultimemType {
  static constexpr bool known = false;
};

namespace detail {

enum class TypeKind { unsigned_integer, signed_integer, bits, half, half_pair, single, twofold };

template <TypeKind the_kind, int the_bytes>
struct KnownType {
  static constexpr bool known = true;
  static constexpr TypeKind kind = the_kind;
  static constexpr int bytes = the_bytes;
};

template <class T>
CUVMM_HOST_DEVICE constexpr bool is(TypeKind kind) noexcept {
  return MultimemType<T>::kind == kind;
}

template <class T>
CUVMM_HOST_DEVICE constexpr bool is_integer() noexcept {
  return is<T>(TypeKind::unsigned_integer) || is<T>(TypeKind::signed_integer);
}
template <class T>
CUVMM_HOST_DEVICE constexpr bool is_half() noexcept {
  return is<T>(TypeKind::half) || is<T>(TypeKind::half_pair);
}
CUVMM_HOST_DEVICE constexpr bool is_bitwise(Operation operation) noexcept {
  return operation == Operation::bit_and || operation == Operation::bit_or || operation == Operation::bit_xor;
}
CUVMM_HOST_DEVICE constexpr bool is_extremum(Operation operation) noexcept {
  return operation == Operation::min || operation == Operation::max;
}

}  // namespace detail

template <>
struct MultimemType<std::uint32_t> : detail::KnownType<detail::TypeKind::unsigned_integer, 4> {};
template <>
struct MultimemType<std::uint64_t> : detail::KnownType<detail::TypeKind::unsigned_integer, 8> {};
template <>
struct MultimemType<std::int32_t> : detail::KnownType<detail::TypeKind::signed_integer, 4> {};
template <>
struct MultimemType<std::int64_t> : detail::KnownType<detail::TypeKind::signed_integer, 8> {};
template <>
struct MultimemType<Bits32> : detail::KnownType<detail::TypeKind::bits, 4> {};
template <>
struct MultimemType<Bits64> : detail::KnownType<detail::TypeKind::bits, 8> {};
template <>
struct MultimemType<float16> : detail::KnownType<detail::TypeKind::half, 2> {};
template <>
struct MultimemType<bfloat16> : detail::KnownType<detail::TypeKind::half, 2> {};
template <>
struct MultimemType<Float16Pair> : detail::KnownType<detail::TypeKind::half_pair, 4> {};
template <>
struct MultimemType<BFloat16Pair> : detail::KnownType<detail::TypeKind::half_pair, 4> {};
template <>
struct MultimemType<float> : detail::KnownType<detail::TypeKind::single, 4> {};
template <>
struct MultimemType<double> : detail::KnownType<detail::TypeKind::twofold, 8> {};

// The rules of type and width, for all three accesses. Each function below is called for its static assertions alone.
template <class T, int width>
CUVMM_HOST_DEVICE constexpr void require_multimem_type() noexcept {
  using detail::is;
  using detail::TypeKind;
  static_assert(MultimemType<T>::known,
                "multimem has no such type on sm_90: use std::uint32_t, std::int32_t, std::uint64_t, std::int64_t, "
                "Bits32, Bits64, float16, bfloat16, Float16Pair, BFloat16Pair, float or double");
  if constexpr (MultimemType<T>::known) {
    static_assert(width == 1 || width == 2 || width == 4 || width == 8, "a multimem vector has 1, 2, 4 or 8 values");
    static_assert(width * MultimemType<T>::bytes <= 16, "a multimem vector has at most 16 bytes");
    static_assert(width == 1 || detail::is_half<T>() || is<T>(TypeKind::single),
                  "multimem has vectors of float, float16, bfloat16 and their pairs only: access integers, bits and "
                  "double one by one");
    static_assert(width != 1 || !is<T>(TypeKind::half),
                  "multimem cannot access a single float16 or bfloat16: use Float16Pair or BFloat16Pair, or a vector "
                  "of 2, 4 or 8");
  }
}

// The rules of operation and type, for load_reduce and reduce.
template <Operation operation, class T, int width>
CUVMM_HOST_DEVICE constexpr void require_multimem_operation() noexcept {
  using detail::is;
  using detail::TypeKind;
  require_multimem_type<T, width>();
  if constexpr (MultimemType<T>::known) {
    constexpr bool is_bits = is<T>(TypeKind::bits);
    static_assert(!detail::is_bitwise(operation) || is_bits, "multimem: and, or and xor take Bits32 or Bits64 only");
    static_assert(detail::is_bitwise(operation) || !is_bits,
                  "multimem: Bits32 and Bits64 have and, or and xor only: numbers have their own types");
    static_assert(operation != Operation::add || !(is<T>(TypeKind::signed_integer) && MultimemType<T>::bytes == 8),
                  "multimem cannot add std::int64_t: add std::uint64_t, whose sum has the same bits");
    static_assert(!detail::is_extremum(operation) || !(is<T>(TypeKind::single) || is<T>(TypeKind::twofold)),
                  "multimem has no min and max of float and double: only of integers, float16 and bfloat16");
  }
}

// The rules of order and scope.
template <Order order, Scope scope>
CUVMM_HOST_DEVICE constexpr void require_multimem_order() noexcept {
  static_assert(order != Order::weak || scope == Scope::none, "multimem: a weak access has no scope: use Scope::none");
  static_assert(order == Order::weak || scope != Scope::none, "multimem: an access that is not weak needs a scope");
}

template <Operation operation, Order order, Scope scope, Accumulation accumulation, class T, int width>
CUVMM_HOST_DEVICE constexpr void require_multimem_load_reduce() noexcept {
  require_multimem_operation<operation, T, width>();
  require_multimem_order<order, scope>();
  static_assert(order != Order::release, "multimem: a load cannot release: use weak, relaxed or acquire");
  if constexpr (MultimemType<T>::known) {
    static_assert(accumulation == Accumulation::own || (operation == Operation::add && detail::is_half<T>()),
                  "multimem: single precision is chosen for additions of float16 and bfloat16 only");
  }
}

template <Order order, Scope scope, class T, int width>
CUVMM_HOST_DEVICE constexpr void require_multimem_store() noexcept {
  require_multimem_type<T, width>();
  require_multimem_order<order, scope>();
  static_assert(order != Order::acquire, "multimem: a store cannot acquire: use weak, relaxed or release");
}

template <Operation operation, Order order, Scope scope, class T, int width>
CUVMM_HOST_DEVICE constexpr void require_multimem_reduce() noexcept {
  require_multimem_operation<operation, T, width>();
  require_multimem_order<order, scope>();
  static_assert(order != Order::acquire, "multimem: a reduction cannot acquire: use relaxed or release");
  static_assert(order != Order::weak, "multimem: a reduction cannot be weak: use relaxed or release");
  if constexpr (MultimemType<T>::known) {
    static_assert(!(detail::is<T>(detail::TypeKind::half_pair) && width == 1 && detail::is_extremum(operation)),
                  "multimem: reduce has min and max of Float16Pair and BFloat16Pair in vectors of 2 or 4 only");
  }
}

}  // namespace cuvmm::gpu
