// Copies that the driver refuses for want of rights.
#pragma once

#include "cuvmm/access_grant.hpp"
#include "cuvmm/driver.hpp"
#include "driver/call.hpp"

namespace cuvmm {

// The driver has one code for a hole, a device without rights, and another device's context that is current. Tells
// which it was of bytes that the device of the current context was to read, or to write.
[[nodiscard, gnu::cold]] Failure with_access_told(Failure failure, const Driver& driver, DeviceAddress address,
                                                  std::size_t bytes, AccessRights needed);

// Makes a call that reads or writes these bytes; throws what it fails with, as above.
template <driver::EntryPoint entry, class... Arguments>
void call_that_touches(const Driver& driver, DeviceAddress address, std::size_t bytes, AccessRights needed,
                       Arguments... arguments) {
  const Result<void> result = driver::try_call<entry>(driver.interface(), arguments...);
  if (!result) [[unlikely]]
    raise(with_access_told(result.failure(), driver, address, bytes, needed));
}

}  // namespace cuvmm
