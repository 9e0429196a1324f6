// Who may do what with a mapping.
#pragma once

#include <cstdint>

#include "driver/abi.hpp"

namespace cuvmm::emulator::model {

inline constexpr int max_devices = 32;

// Somebody who can be granted access: a device, or the host's processors (which have one page table, whichever host
// location a grant names).
class Accessor {
 public:
  static constexpr Accessor device(int ordinal) { return Accessor(ordinal); }
  static constexpr Accessor host() { return Accessor(max_devices); }
  [[nodiscard]] constexpr bool is_host() const { return index_ == max_devices; }
  [[nodiscard]] constexpr int ordinal() const { return index_; }
  [[nodiscard]] constexpr std::uint64_t bit() const { return std::uint64_t{1} << index_; }

 private:
  constexpr explicit Accessor(int index) : index_(index) {}
  int index_;
};

// The rights of one mapping: none for everybody until granted.
class Rights {
 public:
  void set(Accessor who, abi::CUmemAccess_flags flags) {
    readers_ &= ~who.bit();
    writers_ &= ~who.bit();
    if ((flags & 1) != 0) readers_ |= who.bit();
    if ((flags & 2) != 0) writers_ |= who.bit();
  }
  [[nodiscard]] abi::CUmemAccess_flags get(Accessor who) const {
    return static_cast<abi::CUmemAccess_flags>(((readers_ & who.bit()) != 0 ? 1 : 0) |
                                               ((writers_ & who.bit()) != 0 ? 2 : 0));
  }
  // What the driver answers when it is asked for location HOST: what the host has, and no more than device 0 has if
  // that has rights at all; of memory that the host has no rights to, what device 0 has.
  [[nodiscard]] abi::CUmemAccess_flags of_host_location() const {
    const abi::CUmemAccess_flags host = get(Accessor::host());
    const abi::CUmemAccess_flags first = get(Accessor::device(0));
    if (host == abi::CU_MEM_ACCESS_FLAGS_PROT_NONE) return first;
    return first == abi::CU_MEM_ACCESS_FLAGS_PROT_NONE ? host : static_cast<abi::CUmemAccess_flags>(host & first);
  }
  [[nodiscard]] bool allow(Accessor who, bool write) const { return ((write ? writers_ : readers_) & who.bit()) != 0; }
  friend bool operator==(const Rights&, const Rights&) = default;

 private:
  std::uint64_t readers_ = 0;
  std::uint64_t writers_ = 0;
};

}  // namespace cuvmm::emulator::model
