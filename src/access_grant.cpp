#include "cuvmm/access_grant.hpp"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "driver/call.hpp"
#include "driver/convert.hpp"
#include "missing_device.hpp"
#include "peer_refusal.hpp"
#include "range/mapped_range_impl.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

namespace {
constexpr std::string_view granting = "cuvmm::grant";
}  // namespace

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

namespace {

bool is_of_host(const Location& location) noexcept {
  return location.kind != LocationKind::device;
}

// Device memory for the host: no driver has that, and each says so in words of its own, or not at all.
Failure host_refused(const Mapping& mapping, const Location& host) {
  return invalid_use(granting, fmt::format("mapping at {:#x}, {}", mapping.address().value, to_string(host)),
                     "Device memory cannot be granted to the host",
                     "Use memory of the host (LocationKind::host_numa), or copy", "ACCESS-HOST-LOCATION");
}

// What is wrong by itself, and would be told by the same code as much else.
std::optional<Failure> refusal_of(const Mapping& mapping, std::span<const AccessGrant> grants) {
  if (mapping.size() == 0) return owns_nothing(granting, "mapping");
  const auto refuse = [&](std::string_view what, std::string rule, std::string way_out) {
    return invalid_use(granting, fmt::format("mapping at {:#x}, {}", mapping.address().value, what), std::move(rule),
                       std::move(way_out), "ACCESS-DESCRIPTORS");
  };
  if (grants.empty()) return refuse("grants = none", "A grant names a location at least", "Name who is to have access");
  for (const AccessGrant& each : grants) {
    if (auto flaw = range::flaw_in(each)) return refuse(to_string(each.location), std::move(flaw->rule), flaw->way_out);
    if (each.rights != AccessRights::none && is_of_host(each.location) && !is_of_host(mapping.location()))
      return host_refused(mapping, each.location);
  }
  return std::nullopt;
}

}  // namespace

Result<void> try_grant(const Mapping& mapping, std::span<const AccessGrant> grants) {
  if (auto refused = refusal_of(mapping, grants)) return std::move(*refused);
  std::vector<abi::CUmemAccessDesc> descriptors;
  descriptors.reserve(grants.size());
  for (const AccessGrant& each : grants) descriptors.push_back(driver::to_abi(each));
  auto granted = driver::try_call<EntryPoint::cuMemSetAccess>(mapping.driver().interface(), mapping.address().value,
                                                              mapping.size(), descriptors.data(), descriptors.size());
  if (granted) return granted;
  const bool of_device = !is_of_host(mapping.location());
  for (const AccessGrant& each : grants)
    if (of_device && is_of_host(each.location) && granted.failure().code == abi::CUDA_ERROR_NOT_SUPPORTED)
      return host_refused(mapping, each.location);
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
