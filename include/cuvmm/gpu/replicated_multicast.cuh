// Multicast addresses over ordinary memory of the CPU: each access is done to every rank's replica, with the arithmetic
// of the PTX ISA.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuvmm/gpu/host_multicast.cuh"

namespace cuvmm::gpu {
namespace detail {

// An element as bits of its size, so that it can be accessed atomically.
template <class T>
using BitsOf =
    std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

// The builtins want their order as a constant.
template <class Bits>
Bits load_bits(const Bits* address, Order order) noexcept {
  return order == Order::acquire ? __atomic_load_n(address, __ATOMIC_ACQUIRE)
                                 : __atomic_load_n(address, __ATOMIC_RELAXED);
}
template <class Bits>
void store_bits(Bits* address, Bits bits, Order order) noexcept {
  if (order == Order::release)
    __atomic_store_n(address, bits, __ATOMIC_RELEASE);
  else
    __atomic_store_n(address, bits, __ATOMIC_RELAXED);
}

// The smaller, or the larger, value: a NaN is taken only where both are, and -0 is less than +0.
template <class Number>
Number extremum(bool smaller, Number one, Number other) noexcept {
  if constexpr (std::is_floating_point_v<Number>) {
    if (std::isnan(one)) return other;
    if (std::isnan(other)) return one;
    if (one == other) return std::signbit(one) == smaller ? one : other;
  }
  return (one < other) == smaller ? one : other;
}

// How elements of a type are computed with: 16-bit ones in single precision, integers without overflow.
template <class T>
struct Computing {
  using Number = T;
  static Number number(T value) noexcept { return value; }
  static T value(Number number) noexcept { return number; }
};
template <>
struct Computing<float16> {
  using Number = float;
  static Number number(float16 value) noexcept { return value.to_float(); }
  static float16 value(Number number) noexcept { return float16::from(number); }
};
template <>
struct Computing<bfloat16> {
  using Number = float;
  static Number number(bfloat16 value) noexcept { return value.to_float(); }
  static bfloat16 value(Number number) noexcept { return bfloat16::from(number); }
};
template <>
struct Computing<Bits32> {
  using Number = std::uint32_t;
  static Number number(Bits32 value) noexcept { return value.bits; }
  static Bits32 value(Number number) noexcept { return {number}; }
};
template <>
struct Computing<Bits64> {
  using Number = std::uint64_t;
  static Number number(Bits64 value) noexcept { return value.bits; }
  static Bits64 value(Number number) noexcept { return {number}; }
};

template <class Number>
Number combine(Operation operation, Number one, Number other) noexcept {
  if constexpr (std::is_integral_v<Number>) {
    using Unsigned = std::make_unsigned_t<Number>;
    const auto a = static_cast<Unsigned>(one);
    const auto b = static_cast<Unsigned>(other);
    switch (operation) {
      case Operation::add:
        return static_cast<Number>(a + b);
      case Operation::bit_and:
        return static_cast<Number>(a & b);
      case Operation::bit_or:
        return static_cast<Number>(a | b);
      case Operation::bit_xor:
        return static_cast<Number>(a ^ b);
      case Operation::min:
      case Operation::max:
        break;
    }
  } else if (operation == Operation::add) {
    return one + other;
  }
  return extremum(operation == Operation::min, one, other);
}

template <class T>
T load_value(const std::byte* address, Order order) noexcept {
  return bits_as<T>(load_bits(reinterpret_cast<const BitsOf<T>*>(address), order));
}
template <class T>
void combine_into(Operation operation, std::byte* address, T value, Order order) noexcept {
  using Bits = BitsOf<T>;
  using As = Computing<T>;
  auto* const place = reinterpret_cast<Bits*>(address);
  Bits before = load_bits(place, Order::relaxed);
  for (;;) {
    const T sum = As::value(combine(operation, As::number(bits_as<T>(before)), As::number(value)));
    const auto after = bits_as<Bits>(sum);
    const bool is_done =
        order == Order::release
            ? __atomic_compare_exchange_n(place, &before, after, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
            : __atomic_compare_exchange_n(place, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    if (is_done) return;
  }
}

// work(T{}, count): the C++ type of the elements, and how many there are, pairs counted as two.
template <class Work>
void with_element_type(const MultimemAccess& access, Work work) {
  switch (access.element) {
    case MultimemElement::u32:
      return work(std::uint32_t{}, access.width);
    case MultimemElement::u64:
      return work(std::uint64_t{}, access.width);
    case MultimemElement::s32:
      return work(std::int32_t{}, access.width);
    case MultimemElement::s64:
      return work(std::int64_t{}, access.width);
    case MultimemElement::b32:
      return work(Bits32{}, access.width);
    case MultimemElement::b64:
      return work(Bits64{}, access.width);
    case MultimemElement::f16:
      return work(float16{}, access.width);
    case MultimemElement::bf16:
      return work(bfloat16{}, access.width);
    case MultimemElement::f16x2:
      return work(float16{}, 2 * access.width);
    case MultimemElement::bf16x2:
      return work(bfloat16{}, 2 * access.width);
    case MultimemElement::f32:
      return work(float{}, access.width);
    case MultimemElement::f64:
      return work(double{}, access.width);
  }
}

}  // namespace detail

// `bytes` bytes at `multicast` stand for the same bytes of each replica. Nothing is accessed at `multicast` itself,
// which may be reserved addresses that fault. Each element is accessed atomically. Throws std::out_of_range for an
// access beyond the bytes, and std::invalid_argument for one that is not aligned as its size.
class ReplicatedMulticast final : public HostMulticast {
 public:
  ReplicatedMulticast(const void* multicast, std::size_t bytes, std::vector<std::byte*> replicas)
      : multicast_(reinterpret_cast<std::uintptr_t>(multicast)), bytes_(bytes), replicas_(std::move(replicas)) {}

  void load_reduce(const MultimemAccess& access, const void* multicast, void* result) const override {
    detail::with_element_type(access, [&]<class T>(T, int count) {
      using As = detail::Computing<T>;
      const std::size_t offset = offset_of(multicast, sizeof(T) * static_cast<std::size_t>(count));
      for (int i = 0; i < count; ++i) {
        const std::size_t at = offset + static_cast<std::size_t>(i) * sizeof(T);
        auto sum = As::number(detail::load_value<T>(replicas_.front() + at, access.order));
        for (std::size_t rank = 1; rank < replicas_.size(); ++rank)
          sum = detail::combine(access.operation, sum,
                                As::number(detail::load_value<T>(replicas_[rank] + at, access.order)));
        static_cast<T*>(result)[i] = As::value(sum);
      }
    });
  }
  void store(const MultimemAccess& access, void* multicast, const void* value) const override {
    for_each_element(access, multicast, value, [&]<class T>(std::byte* place, T element) {
      detail::store_bits(reinterpret_cast<detail::BitsOf<T>*>(place), bits_as<detail::BitsOf<T>>(element),
                         access.order);
    });
  }
  void reduce(const MultimemAccess& access, void* multicast, const void* value) const override {
    for_each_element(access, multicast, value, [&]<class T>(std::byte* place, T element) {
      detail::combine_into<T>(access.operation, place, element, access.order);
    });
  }

 private:
  template <class Work>
  void for_each_element(const MultimemAccess& access, void* multicast, const void* value, Work work) const {
    detail::with_element_type(access, [&]<class T>(T, int count) {
      const std::size_t offset = offset_of(multicast, sizeof(T) * static_cast<std::size_t>(count));
      for (std::byte* const replica : replicas_)
        for (int i = 0; i < count; ++i)
          work(replica + offset + static_cast<std::size_t>(i) * sizeof(T), static_cast<const T*>(value)[i]);
    });
  }

  [[nodiscard]] std::size_t offset_of(const void* address, std::size_t size) const {
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - multicast_;
    if (offset > bytes_ || bytes_ - offset < size)
      throw std::out_of_range("multimem: the access is not within the multicast addresses");
    if (offset % size != 0) throw std::invalid_argument("multimem: the address is not a multiple of the access's size");
    return offset;
  }

  std::uintptr_t multicast_;
  std::size_t bytes_;
  std::vector<std::byte*> replicas_;
};

}  // namespace cuvmm::gpu
