// Who may access a range.
#include <fmt/format.h>

#include <algorithm>

#include "cuvmm/device.hpp"
#include "range/mapped_range_impl.hpp"

namespace cuvmm {

using range::Extent;

namespace {

AccessRights rights_in(const std::vector<AccessGrant>& grants, const Location& location) {
  for (const AccessGrant& each : grants)
    if (each.location == location) return each.rights;
  return AccessRights::none;
}

// The grants with the changes: of two for one location the later counts, and no rights are no entry.
std::vector<AccessGrant> changed(const std::vector<AccessGrant>& grants, std::span<const AccessGrant> changes) {
  std::vector<AccessGrant> result = grants;
  for (const AccessGrant& change : changes) {
    std::erase_if(result, [&](const AccessGrant& each) { return each.location == change.location; });
    if (change.rights != AccessRights::none) result.push_back(change);
  }
  return result;
}

}  // namespace

Result<void> MappedRange::Impl::grant(std::span<const AccessGrant> changes) {
  const auto is_of_host = [](const Location& location) { return location.kind != LocationKind::device; };
  for (const AccessGrant& each : changes) {
    if (!is_of_host(each.location) || each.rights == AccessRights::none) continue;
    const bool device_memory = std::any_of(chunks_.begin(), chunks_.end(), [&](const auto& chunk) {
      return !is_of_host(chunk.second.properties().location);
    });
    if (device_memory || (chunks_.empty() && !is_of_host(properties_.location)))
      return refusal("MappedRange::grant", to_string(each.location), "Device memory cannot be granted to the host",
                     "Use memory of the host (LocationKind::host_numa), or copy");
  }
  std::vector<AccessGrant> after = changed(grants_, changes);
  std::vector<AccessGrant> previous;
  for (const AccessGrant& each : changes) previous.push_back({each.location, rights_in(grants_, each.location)});
  const std::vector<Extent> runs = addresses_->runs_of(chunks_);
  if (changes.empty()) return {};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Result<void> granted = addresses_->set_access(runs[i], changes);
    if (granted) continue;
    for (std::size_t j = 0; j < i; ++j)
      if (Result<void> undone = addresses_->set_access(runs[j], previous); !undone)
        report_cleanup_failure(undone.failure());
    return granted;
  }
  grants_ = std::move(after);
  return {};
}

Result<void> MappedRange::Impl::revoke(const Location& location) {
  if (auto waited = wait_for_device(); !waited) return waited;
  const AccessGrant none{location, AccessRights::none};
  return grant(std::span(&none, 1));
}

std::vector<DeviceOrdinal> MappedRange::Impl::grant_where_reachable(std::span<const DeviceOrdinal> devices,
                                                                    AccessRights rights) {
  std::vector<Location> places{properties_.location};
  for (const auto& chunk : chunks_) {
    const Location& place = chunk.second.properties().location;
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  std::vector<AccessGrant> grants;
  std::vector<DeviceOrdinal> others;
  for (const DeviceOrdinal ordinal : devices) {
    const Device device = driver().device(ordinal);
    const bool reaches = std::all_of(places.begin(), places.end(), [&](const Location& place) {
      return place.kind != LocationKind::device || place.id == ordinal.value ||
             device.can_access_peer(driver().device(DeviceOrdinal(place.id)));
    });
    if (reaches) {
      grants.push_back({device.location(), rights});
    } else {
      others.push_back(ordinal);
    }
  }
  grant(grants).value();
  return others;
}

}  // namespace cuvmm
