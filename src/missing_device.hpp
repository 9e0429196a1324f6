// Devices that are named and that there are not.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cuvmm/driver.hpp"
#include "cuvmm/error.hpp"
#include "cuvmm/memory_properties.hpp"

namespace cuvmm {

// "There is no device 7: the driver shows 2 devices, numbered from 0", if that is so. Throws if the driver cannot be
// asked.
[[nodiscard]] std::optional<std::string> no_such_device(const Driver& driver, const Location& location);

inline constexpr std::string_view name_another_device = "Name one that there is: Driver::devices() lists them";

// A failure of a call that named the location, told as that where the device is what was wrong. `rule_id`: of the rule
// that the call has for it.
[[nodiscard]] Failure with_missing_device_told(Failure failure, const Driver& driver, const Location& location,
                                               std::string_view rule_id);

}  // namespace cuvmm
