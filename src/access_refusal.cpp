#include "access_refusal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <vector>

#include "driver/convert.hpp"
#include "pointer_query.hpp"

namespace cuvmm {

namespace {

// Nothing where the driver does not tell, as of memory of cuMemAlloc.
std::optional<AccessRights> rights_of(const Driver& driver, int device, DeviceAddress address) {
  const abi::CUmemLocation location = driver::to_abi(Location::device(DeviceOrdinal(device)));
  unsigned long long flags = 0;
  if (driver.interface().cuMemGetAccess(&flags, &location, address.value) != abi::CUDA_SUCCESS) return std::nullopt;
  return static_cast<AccessRights>(flags);
}

bool suffice(AccessRights rights, AccessRights needed) noexcept {
  return static_cast<int>(rights) >= static_cast<int>(needed);
}

std::vector<int> devices_with(const Driver& driver, AccessRights needed, DeviceAddress address) {
  std::vector<int> found;
  const int count = driver.device_count();
  for (int device = 0; device < count; ++device)
    if (const auto rights = rights_of(driver, device, address); rights && suffice(*rights, needed))
      found.push_back(device);
  return found;
}

void tell_of_hole(Failure& failure, DeviceAddress at, std::size_t byte) {
  failure.rule = fmt::format("Nothing is mapped at {:#x}, byte {} of those to be touched", at.value, byte);
  failure.way_out =
      "Map memory there first (MappedRange::map), or stay within what is mapped: MappedRange::chunks lists it, and "
      "what "
      "lies between is a hole";
}

void tell_of_rights(Failure& failure, const Driver& driver, int device, DeviceAddress at, AccessRights rights,
                    AccessRights needed) {
  const char* const what = needed == AccessRights::read ? "read" : "write";
  failure.rule = rights == AccessRights::none
                     ? fmt::format("Device {}, whose context is current, may not {} at {:#x}", device, what, at.value)
                     : fmt::format("Device {}, whose context is current, may only read at {:#x}", device, at.value);
  const std::vector<int> others = devices_with(driver, needed, at);
  failure.way_out = fmt::format("Grant device {} the right to {} (cuvmm::grant, MappedRange::grant)", device, what);
  if (!others.empty())
    failure.way_out += fmt::format(", or make a context of device {} current, which has it (cuvmm::CurrentContext)",
                                   fmt::join(others, " or "));
  if (rights == AccessRights::read)
    failure.way_out +=
        "; what was attached to read has to be attached with AttachOptions::rights = AccessRights::read_write, if its "
        "publisher offers that (PublishOptions::rights)";
}

// Whether the reason was found.
bool tell_reason(Failure& failure, const Driver& driver, DeviceAddress address, std::size_t bytes,
                 AccessRights needed) {
  int device = 0;
  if (driver.interface().cuCtxGetDevice(&device) != abi::CUDA_SUCCESS) return false;
  const unsigned long long end = address.value + bytes;
  for (unsigned long long next = address.value; next < end;) {
    const DeviceAddress at(next);
    const auto facts = query_pointer(driver, at);
    if (!facts) return false;
    const unsigned long long behind = facts->base.value + facts->size;
    if (!facts->known() || behind <= next) {
      tell_of_hole(failure, at, next - address.value);
      return true;
    }
    if (const auto rights = rights_of(driver, device, at); rights && !suffice(*rights, needed)) {
      tell_of_rights(failure, driver, device, at, *rights, needed);
      return true;
    }
    next = behind;
  }
  return false;
}

}  // namespace

Failure with_access_told(Failure failure, const Driver& driver, DeviceAddress address, std::size_t bytes,
                         AccessRights needed) try {
  if (failure.code != abi::CUDA_ERROR_INVALID_VALUE || failure.rule_ids != "ACCESS-NEEDED") return failure;
  tell_reason(failure, driver, address, bytes, needed);
  return failure;
} catch (const Error&) {
  return failure;  // as the driver told it
}

}  // namespace cuvmm
