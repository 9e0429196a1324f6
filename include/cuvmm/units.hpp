// Sizes, addresses and device numbers.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cuvmm {

inline namespace literals {

// 2_MiB is a std::size_t of 2 * 2^20 bytes; one that does not fit does not compile.
consteval std::size_t operator""_KiB(unsigned long long count) {
  return count <= (SIZE_MAX >> 10) ? count << 10 : throw "more bytes than an address has";
}
consteval std::size_t operator""_MiB(unsigned long long count) {
  return count <= (SIZE_MAX >> 20) ? count << 20 : throw "more bytes than an address has";
}
consteval std::size_t operator""_GiB(unsigned long long count) {
  return count <= (SIZE_MAX >> 30) ? count << 30 : throw "more bytes than an address has";
}
consteval std::size_t operator""_TiB(unsigned long long count) {
  return count <= (SIZE_MAX >> 40) ? count << 40 : throw "more bytes than an address has";
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
