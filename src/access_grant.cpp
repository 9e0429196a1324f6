#include "cuvmm/access_grant.hpp"

#include <vector>

#include "driver/call.hpp"
#include "driver/convert.hpp"
#include "missing_device.hpp"
#include "peer_refusal.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

std::string_view to_string(AccessRights rights) noexcept {
  switch (rights) {
    case AccessRights::none:
      return "no access";
    case AccessRights::read:
      return "read";
    case AccessRights::read_write:
      return "read and write";
  }
  return "unknown rights";
}

Result<void> try_grant(const Mapping& mapping, std::span<const AccessGrant> grants) {
  if (mapping.size() == 0) return owns_nothing("cuvmm::grant", "mapping");
  std::vector<abi::CUmemAccessDesc> descriptors;
  descriptors.reserve(grants.size());
  for (const AccessGrant& each : grants) descriptors.push_back(driver::to_abi(each));
  auto granted = driver::try_call<EntryPoint::cuMemSetAccess>(mapping.driver().interface(), mapping.address().value,
                                                              mapping.size(), descriptors.data(), descriptors.size());
  if (granted) return granted;
  for (const AccessGrant& each : grants) {
    Failure told = with_missing_device_told(granted.failure(), mapping.driver(), each.location, "ACCESS-DESCRIPTORS");
    if (told.rule != granted.failure().rule) return told;
  }
  const Location place = mapping.location();
  return with_unreachable_told(granted.failure(), mapping.driver(), grants, std::span(&place, 1));
}

void grant(const Mapping& mapping, std::span<const AccessGrant> grants) {
  try_grant(mapping, grants).value();
}

void grant(const Mapping& mapping, std::span<const Location> locations, AccessRights rights) {
  std::vector<AccessGrant> grants;
  grants.reserve(locations.size());
  for (const Location& location : locations) grants.push_back({location, rights});
  grant(mapping, grants);
}

void grant(const Mapping& mapping, const Location& location, AccessRights rights) {
  const AccessGrant one{location, rights};
  grant(mapping, std::span(&one, 1));
}

namespace {

// Whether the location has no rights, as far as the driver knows: some drivers take nothing from those that could have
// none either.
bool has_no_rights(const Mapping& mapping, const Location& location) {
  if (mapping.location().kind == LocationKind::device && location.kind != LocationKind::device) return true;
  const abi::CUmemLocation converted = driver::to_abi(location);
  unsigned long long flags = abi::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const abi::CUresult asked = mapping.driver().interface().cuMemGetAccess(&flags, &converted, mapping.address().value);
  return asked == abi::CUDA_SUCCESS && flags == abi::CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

}  // namespace

void revoke(const Mapping& mapping, const Location& location) {
  const AccessGrant none{location, AccessRights::none};
  const auto revoked = try_grant(mapping, std::span(&none, 1));
  if (revoked || (mapping.size() != 0 && has_no_rights(mapping, location))) return;
  raise(revoked.failure());
}

AccessRights access(const Mapping& mapping, const Location& location) {
  const abi::CUmemLocation converted = driver::to_abi(location);
  unsigned long long flags = 0;
  if (mapping.size() == 0) raise(owns_nothing("cuvmm::access", "mapping"));
  call<EntryPoint::cuMemGetAccess>(mapping.driver().interface(), &flags, &converted, mapping.address().value);
  return static_cast<AccessRights>(flags);
}

}  // namespace cuvmm
