#include "emulator/multimem.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace cuvmm::emulator::multimem {
namespace {

std::memory_order standard(Order order) noexcept {
  if (order == Order::acquire) return std::memory_order_acquire;
  return order == Order::release ? std::memory_order_release : std::memory_order_relaxed;
}

// What elements of a type are made of: numbers that are loaded and changed at once. Halves of f16x2 are two of them.
struct F16 {
  using Bits = std::uint16_t;
  using Number = float;
  static float number(Bits bits) noexcept { return f32_of_f16(bits); }
  static Bits bits(float number) noexcept { return f16_of(number); }
};
struct BF16 {
  using Bits = std::uint16_t;
  using Number = float;
  static float number(Bits bits) noexcept { return f32_of_bf16(bits); }
  static Bits bits(float number) noexcept { return bf16_of(number); }
};
template <class Value, class As>
struct Plain {
  using Bits = As;
  using Number = Value;
  static Value number(As bits) noexcept { return std::bit_cast<Value>(bits); }
  static As bits(Value number) noexcept { return std::bit_cast<As>(number); }
};

// Calls `work(Lane())` with the lane of that type.
template <class Work>
void with_lane(Type type, Work&& work) {
  switch (type) {
    case Type::f16:
    case Type::f16x2:
      return work(F16());
    case Type::bf16:
    case Type::bf16x2:
      return work(BF16());
    case Type::f32:
      return work(Plain<float, std::uint32_t>());
    case Type::f64:
      return work(Plain<double, std::uint64_t>());
    case Type::s32:
      return work(Plain<std::int32_t, std::uint32_t>());
    case Type::s64:
      return work(Plain<std::int64_t, std::uint64_t>());
    case Type::u32:
    case Type::b32:
      return work(Plain<std::uint32_t, std::uint32_t>());
    case Type::u64:
    case Type::b64:
      return work(Plain<std::uint64_t, std::uint64_t>());
  }
}

template <class Number>
Number smaller(Number one, Number other) noexcept {
  if constexpr (std::is_floating_point_v<Number>) {
    if (std::isnan(one)) return other;
    if (std::isnan(other)) return one;
    if (one == other) return std::signbit(one) ? one : other;  // -0 is below +0
  }
  return other < one ? other : one;
}

template <class Number>
Number larger(Number one, Number other) noexcept {
  if constexpr (std::is_floating_point_v<Number>) {
    if (std::isnan(one)) return other;
    if (std::isnan(other)) return one;
    if (one == other) return std::signbit(one) ? other : one;
  }
  return one < other ? other : one;
}

template <class Number>
Number sum(Number one, Number other) noexcept {
  if constexpr (std::is_integral_v<Number>) {
    using Unsigned = std::make_unsigned_t<Number>;
    return static_cast<Number>(static_cast<Unsigned>(one) + static_cast<Unsigned>(other));
  } else {
    return one + other;
  }
}

template <class Number>
Number combined(Operation operation, Number one, Number other) noexcept {
  if constexpr (std::is_integral_v<Number>) {
    if (operation == Operation::bit_and) return one & other;
    if (operation == Operation::bit_or) return one | other;
    if (operation == Operation::bit_xor) return one ^ other;
  }
  if (operation == Operation::minimum) return smaller(one, other);
  if (operation == Operation::maximum) return larger(one, other);
  return sum(one, other);
}

template <class Bits>
std::atomic_ref<Bits> lane_at(std::byte* replica, std::uint64_t offset, std::size_t lane) noexcept {
  return std::atomic_ref<Bits>(*reinterpret_cast<Bits*>(replica + offset + lane * sizeof(Bits)));
}

void check(const MulticastWindow& window, std::uint64_t offset, Form form, Instruction instruction) {
  form.instruction = instruction;
  if (const std::string_view why = why_not(form); !why.empty())
    throw std::invalid_argument("emulated multimem: PTX has no such instruction: " + std::string(why));
  const std::size_t bytes = bytes_of(form);
  if (window.replicas.empty() || offset > window.bytes || bytes > window.bytes - offset)
    throw Fault(Fault::Kind::outside, "multimem reaches beyond its multicast addresses");
  if (reinterpret_cast<std::uintptr_t>(window.replicas.front() + offset) % bytes != 0)
    throw Fault(Fault::Kind::misaligned, "multimem at an address that is no multiple of what it touches");
}

template <class Lane>
typename Lane::Bits reduced(const MulticastWindow& window, std::uint64_t offset, std::size_t lane, const Form& form) {
  using Bits = typename Lane::Bits;
  const std::memory_order order = standard(form.order);
  auto so_far = Lane::number(lane_at<Bits>(window.replicas.front(), offset, lane).load(order));
  for (std::byte* const replica : window.replicas.subspan(1)) {
    so_far = combined(form.operation, so_far, Lane::number(lane_at<Bits>(replica, offset, lane).load(order)));
    if (form.accumulation == Accumulation::native) so_far = Lane::number(Lane::bits(so_far));
  }
  return Lane::bits(so_far);
}

// A NaN's payload keeps its upper bits, and the number stays none.
template <int mantissa_bits>
std::uint16_t nan_bits(std::uint32_t bits, std::uint16_t sign_and_exponent) noexcept {
  const auto payload = static_cast<std::uint16_t>((bits & 0x7f'ffffU) >> (23 - mantissa_bits));
  return static_cast<std::uint16_t>(sign_and_exponent | payload | (1U << (mantissa_bits - 1)));
}

}  // namespace

void load_reduce(const MulticastWindow& window, std::uint64_t offset, const Form& form, void* result) {
  check(window, offset, form, Instruction::load_reduce);
  with_lane(form.type, [&](auto lane_of_type) {
    using Lane = decltype(lane_of_type);
    for (std::size_t lane = 0; lane < bytes_of(form) / sizeof(typename Lane::Bits); ++lane) {
      const auto bits = reduced<Lane>(window, offset, lane, form);
      std::memcpy(static_cast<std::byte*>(result) + lane * sizeof bits, &bits, sizeof bits);
    }
  });
}

void store(const MulticastWindow& window, std::uint64_t offset, const Form& form, const void* value) {
  check(window, offset, form, Instruction::store);
  with_lane(form.type, [&](auto lane_of_type) {
    using Bits = typename decltype(lane_of_type)::Bits;
    for (std::size_t lane = 0; lane < bytes_of(form) / sizeof(Bits); ++lane) {
      Bits bits{};
      std::memcpy(&bits, static_cast<const std::byte*>(value) + lane * sizeof bits, sizeof bits);
      for (std::byte* const replica : window.replicas)
        lane_at<Bits>(replica, offset, lane).store(bits, standard(form.order));
    }
  });
}

void reduce(const MulticastWindow& window, std::uint64_t offset, const Form& form, const void* value) {
  check(window, offset, form, Instruction::reduce);
  with_lane(form.type, [&](auto lane_of_type) {
    using Lane = decltype(lane_of_type);
    using Bits = typename Lane::Bits;
    for (std::size_t lane = 0; lane < bytes_of(form) / sizeof(Bits); ++lane) {
      Bits operand{};
      std::memcpy(&operand, static_cast<const std::byte*>(value) + lane * sizeof operand, sizeof operand);
      for (std::byte* const replica : window.replicas) {
        const auto place = lane_at<Bits>(replica, offset, lane);
        Bits before = place.load(std::memory_order_relaxed);
        while (!place.compare_exchange_weak(
            before, Lane::bits(combined(form.operation, Lane::number(before), Lane::number(operand))),
            standard(form.order), std::memory_order_relaxed)) {
        }
      }
    }
  });
}

float f32_of_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t bf16_of(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return nan_bits<7>(bits, static_cast<std::uint16_t>((bits >> 16) & 0xff80U));
  const std::uint32_t half_and_odd = 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<std::uint16_t>((bits + half_and_odd) >> 16);
}

float f32_of_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f80'0000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

std::uint16_t f16_of(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  if (std::isnan(value)) return nan_bits<10>(bits, static_cast<std::uint16_t>(sign | 0x7c00U));
  const float magnitude = std::bit_cast<float>(bits & 0x7fff'ffffU);
  constexpr float too_large = 65520.0F;            // halfway between the largest f16 and the power of two behind it
  constexpr float least_normal = 6.103515625e-5F;  // 2^-14
  if (magnitude >= too_large) return sign | 0x7c00U;
  if (magnitude < least_normal)  // a whole number of 2^-24, rounded as the processor does
    return sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  const std::uint32_t half_and_odd = 0xfffU + ((bits >> 13) & 1U);
  const std::uint32_t rounded = (bits & 0x7fff'ffffU) + half_and_odd;
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

}  // namespace cuvmm::emulator::multimem
