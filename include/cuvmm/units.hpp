// Sizes, addresses and device numbers.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cuvmm {

namespace detail {

// The number that these digits write, times 2^shift. What is no decimal number, or is too large, is no constant.
template <unsigned shift, char... digits>
consteval std::size_t parsed_bytes() {
  std::size_t count = 0;
  for (const char each : {digits...}) {
    if (each == '\'') continue;
    if (each < '0' || each > '9') throw "bytes are counted by a decimal number";
    const auto digit = static_cast<std::size_t>(each - '0');
    if (count > ((SIZE_MAX >> shift) - digit) / 10) throw "more bytes than an address has";
    count = count * 10 + digit;
  }
  return count << shift;
}

template <unsigned shift, char... digits>
inline constexpr std::size_t literal_bytes = parsed_bytes<shift, digits...>();

}  // namespace detail

inline namespace literals {

// 2_MiB is a std::size_t of 2 * 2^20 bytes; one that does not fit does not compile. (A template of the digits: clang 14
// does not take a consteval function everywhere.)
template <char... digits>
[[nodiscard]] constexpr std::size_t operator""_KiB() noexcept {
  return detail::literal_bytes<10, digits...>;
}
template <char... digits>
[[nodiscard]] constexpr std::size_t operator""_MiB() noexcept {
  return detail::literal_bytes<20, digits...>;
}
template <char... digits>
[[nodiscard]] constexpr std::size_t operator""_GiB() noexcept {
  return detail::literal_bytes<30, digits...>;
}
template <char... digits>
[[nodiscard]] constexpr std::size_t operator""_TiB() noexcept {
  return detail::literal_bytes<40, digits...>;
}

}  // namespace literals

// The number of a device as the driver counts them: 0, 1, ... among those that CUDA_VISIBLE_DEVICES leaves visible.
struct DeviceOrdinal {
  int value = 0;

  constexpr DeviceOrdinal() noexcept = default;
  constexpr explicit DeviceOrdinal(int ordinal) noexcept : value(ordinal) {}
  friend constexpr auto operator<=>(DeviceOrdinal, DeviceOrdinal) noexcept = default;
};

// A virtual address as devices see it: the driver's CUdeviceptr. `value` has CUdeviceptr's type, so &address.value
// serves as a kernel parameter.
struct DeviceAddress {
  unsigned long long value = 0;

  constexpr DeviceAddress() noexcept = default;
  constexpr explicit DeviceAddress(unsigned long long address) noexcept : value(address) {}
  friend constexpr auto operator<=>(DeviceAddress, DeviceAddress) noexcept = default;
  friend constexpr DeviceAddress operator+(DeviceAddress address, std::size_t bytes) noexcept {
    return DeviceAddress{address.value + bytes};
  }

  // The same address as a pointer, for kernels and for libraries that take one. Only memory granted to the host may
  // be touched through it by the CPU.
  template <class T = void>
  [[nodiscard]] T* as_pointer() const noexcept {
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(value));
  }
};

constexpr bool is_power_of_two(std::size_t number) noexcept {
  return number != 0 && (number & (number - 1)) == 0;
}

// Whether `bytes` is a multiple of `granularity`, which is not 0.
constexpr bool is_aligned(std::size_t bytes, std::size_t granularity) noexcept {
  return bytes % granularity == 0;
}

// The least multiple of `granularity` that is no less than `bytes`; nothing if that overflows or `granularity` is 0.
constexpr std::optional<std::size_t> checked_align_up(std::size_t bytes, std::size_t granularity) noexcept {
  if (granularity == 0) return std::nullopt;
  const std::size_t rest = bytes % granularity;
  if (rest == 0) return bytes;
  const std::size_t missing = granularity - rest;
  if (bytes > SIZE_MAX - missing) return std::nullopt;
  return bytes + missing;
}

// The same; throws InvalidUse where there is no such multiple.
[[nodiscard]] std::size_t align_up(std::size_t bytes, std::size_t granularity);

// For people: "512 B", "2 MiB", "1.5 GiB"; a rounded value shows its decimals and "about": "about 2.00 MiB".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

}  // namespace cuvmm
