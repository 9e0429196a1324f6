// Who may access mapped memory, and how.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "cuvmm/mapping.hpp"
#include "cuvmm/memory_properties.hpp"
#include "cuvmm/result.hpp"

namespace cuvmm {

enum class AccessRights : int { none = 0, read = 1, read_write = 3 };  // the values of CUmemAccess_flags

// "no access", "read", "read and write".
[[nodiscard]] std::string_view to_string(AccessRights rights) noexcept;

// The rights of one location to a mapping. A location by itself is to read and write; no rights are said as such.
struct AccessGrant {
  Location location;
  AccessRights rights = AccessRights::read_write;

  friend constexpr bool operator==(const AccessGrant&, const AccessGrant&) noexcept = default;
};

// Sets the rights of some locations to the whole mapping in one call of the driver (guide 4.16.2.5; cuMemSetAccess);
// those of other locations stay. Of two grants for one location the later one counts. Rights end when the memory is
// unmapped. If one grant is refused, none takes effect. Taking a right away does not wait for the device: see Mapping.
// Throws InvalidUse for an empty list, for rights or a location that there is not, and for the host where the memory is
// a device's; NotSupported for a device that cannot reach the memory. Thread-safe.
void grant(const Mapping& mapping, std::span<const AccessGrant> grants);
void grant(const Mapping& mapping, std::span<const Location> locations, AccessRights rights);
void grant(const Mapping& mapping, const Location& location, AccessRights rights);
inline void grant(const Mapping& mapping, std::initializer_list<AccessGrant> grants) {
  grant(mapping, std::span(grants.begin(), grants.size()));
}
inline void grant(const Mapping& mapping, std::initializer_list<Location> locations, AccessRights rights) {
  grant(mapping, std::span(locations.begin(), locations.size()), rights);
}

// The first of them, with the failure as a value.
[[nodiscard]] Result<void> try_grant(const Mapping& mapping, std::span<const AccessGrant> grants);
[[nodiscard]] inline Result<void> try_grant(const Mapping& mapping, std::initializer_list<AccessGrant> grants) {
  return try_grant(mapping, std::span(grants.begin(), grants.size()));
}

// Takes all rights of the location away; does nothing where it has none. Throws InvalidUse for a device that there is
// not.
void revoke(const Mapping& mapping, const Location& location);

// The rights that the location has (cuMemGetAccess). Asked of device memory for the host, which never reaches it, H200s
// tell the rights of the device.
[[nodiscard]] AccessRights access(const Mapping& mapping, const Location& location);

}  // namespace cuvmm
