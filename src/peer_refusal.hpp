// Grants to devices that cannot reach the memory of another device.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "cuvmm/access_grant.hpp"
#include "cuvmm/driver.hpp"
#include "cuvmm/error.hpp"

namespace cuvmm {

// The first of the grants whose device cannot reach memory at one of the places, as a failure of `call` (NotSupported).
// Devices that there are not are passed over. Throws if the driver cannot be asked.
[[nodiscard]] std::optional<Failure> unreachable_in(const Driver& driver, std::string_view call,
                                                    std::span<const AccessGrant> grants,
                                                    std::span<const Location> places);

// A failure of cuMemSetAccess, whose code for such a device is that for a device that there is not: told as what it is.
[[nodiscard]] Failure with_unreachable_told(Failure failure, const Driver& driver, std::span<const AccessGrant> grants,
                                            std::span<const Location> places);

}  // namespace cuvmm
