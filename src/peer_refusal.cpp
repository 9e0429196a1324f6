#include "peer_refusal.hpp"

#include <fmt/format.h>

#include "cuvmm/device.hpp"
#include "driver/abi.hpp"
#include "driver/advice.hpp"

namespace cuvmm {

namespace {

bool reaches(const Driver& driver, int device, int other) {
  return device == other || driver.device(DeviceOrdinal(device)).can_access_peer(driver.device(DeviceOrdinal(other)));
}

void tell(Failure& failure, int device, int other) {
  failure.kind = ErrorKind::not_supported;
  failure.feature = "access to another device's memory";
  failure.reason = fmt::format("device {} cannot reach device {}", device, other);
  failure.rule_ids = "ACCESS-PEER";
  failure.rule = "A device can be granted access to another's memory only if the two can reach each other";
  failure.way_out = driver::way_out_for_rule("ACCESS-PEER");
}

}  // namespace

std::optional<Failure> unreachable_in(const Driver& driver, std::string_view call, std::span<const AccessGrant> grants,
                                      std::span<const Location> places) {
  std::optional<int> devices;
  for (const AccessGrant& grant : grants) {
    if (grant.location.kind != LocationKind::device || grant.rights == AccessRights::none) continue;
    for (const Location& place : places) {
      if (place.kind != LocationKind::device || place.id == grant.location.id) continue;
      if (!devices) devices = driver.device_count();
      const auto is_one = [&](int ordinal) { return ordinal >= 0 && ordinal < *devices; };
      if (!is_one(grant.location.id) || !is_one(place.id) || reaches(driver, grant.location.id, place.id)) continue;
      Failure failure;
      failure.call = call;
      failure.arguments = fmt::format("{}, memory of {}", to_string(grant.location), to_string(place));
      tell(failure, grant.location.id, place.id);
      return failure;
    }
  }
  return std::nullopt;
}

Failure with_unreachable_told(Failure failure, const Driver& driver, std::span<const AccessGrant> grants,
                              std::span<const Location> places) try {
  if (failure.code != abi::CUDA_ERROR_INVALID_DEVICE && failure.code != abi::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
    return failure;
  if (const auto unreachable = unreachable_in(driver, failure.call, grants, places)) {
    failure.kind = unreachable->kind;
    failure.feature = unreachable->feature;
    failure.reason = unreachable->reason;
    failure.rule_ids = unreachable->rule_ids;
    failure.rule = unreachable->rule;
    failure.way_out = unreachable->way_out;
  }
  return failure;
} catch (const Error&) {
  return failure;  // as the driver told it
}

}  // namespace cuvmm
