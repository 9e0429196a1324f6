// What physical memory is to be like: where it lies, how it may be shared.
#pragma once

#include <string>

#include "cuvmm/units.hpp"

namespace cuvmm {

enum class LocationKind : int { device = 1, host = 2, host_numa = 3 };  // the values of CUmemLocationType

// A place where physical memory lies, or from where mapped memory is accessed.
struct Location {
  LocationKind kind = LocationKind::device;
  int id = 0;  // the ordinal of a device, or the number of a NUMA node

  [[nodiscard]] static constexpr Location device(DeviceOrdinal ordinal) noexcept {
    return {LocationKind::device, ordinal.value};
  }
  [[nodiscard]] static constexpr Location host() noexcept { return {LocationKind::host, 0}; }
  [[nodiscard]] static constexpr Location host_numa(int node) noexcept { return {LocationKind::host_numa, node}; }
  friend constexpr bool operator==(const Location&, const Location&) noexcept = default;
};

// How a handle to memory can be passed to another process; the values of CUmemAllocationHandleType.
enum class HandleType : unsigned { posix_file_descriptor = 1, win32 = 2, win32_kmt = 4, fabric = 8 };

// A set of handle types.
class HandleTypes {
 public:
  constexpr HandleTypes() noexcept = default;
  // A type is a set of one. NOLINTNEXTLINE(google-explicit-constructor)
  constexpr HandleTypes(HandleType type) noexcept : bits_(static_cast<unsigned>(type)) {}

  [[nodiscard]] constexpr bool contains(HandleType type) const noexcept {
    return (bits_ & static_cast<unsigned>(type)) != 0;
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
  [[nodiscard]] constexpr unsigned bits() const noexcept { return bits_; }
  // The set without that type.
  [[nodiscard]] constexpr HandleTypes without(HandleType type) const noexcept {
    HandleTypes rest;
    rest.bits_ = bits_ & ~static_cast<unsigned>(type);
    return rest;
  }
  friend constexpr HandleTypes operator|(HandleTypes a, HandleTypes b) noexcept {
    HandleTypes both;
    both.bits_ = a.bits_ | b.bits_;
    return both;
  }
  friend constexpr bool operator==(HandleTypes, HandleTypes) noexcept = default;

 private:
  unsigned bits_ = 0;
};

constexpr HandleTypes operator|(HandleType a, HandleType b) noexcept {
  return HandleTypes(a) | HandleTypes(b);
}

// The properties that memory is created with (guide 4.16.2.1; CUmemAllocationProp). All memory is pinned.
struct MemoryProperties {
  Location location{};
  HandleTypes handle_types{};    // how it may be exported; none: not at all
  bool compression = false;      // ask for compressible memory
  bool gpu_direct_rdma = false;  // ask for memory that network cards may reach

  friend constexpr bool operator==(const MemoryProperties&, const MemoryProperties&) noexcept = default;
};

// The unit of allocation sizes: what is required, or what performs best.
enum class Granularity : int { minimum = 0, recommended = 1 };

// "device 0", "host", "host NUMA node 1".
[[nodiscard]] std::string to_string(const Location& location);

// "POSIX file descriptor", "POSIX file descriptor and fabric handle", "none": for people.
[[nodiscard]] std::string to_string(HandleTypes types);

}  // namespace cuvmm
