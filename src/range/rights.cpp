// Who may access a range.
#include <fmt/format.h>

#include <algorithm>

#include "cuvmm/device.hpp"
#include "driver/convert.hpp"
#include "peer_refusal.hpp"
#include "range/mapped_range_impl.hpp"

namespace cuvmm {

namespace {

abi::CUmemAccess_flags flags_in(std::span<const abi::CUmemAccessDesc> grants, const abi::CUmemLocation& location) {
  for (const abi::CUmemAccessDesc& each : grants)
    if (each.location.type == location.type && each.location.id == location.id) return each.flags;
  return abi::CU_MEM_ACCESS_FLAGS_PROT_NONE;
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

Result<int> try_device_count(const Driver& driver) {
  try {
    return driver.device_count();
  } catch (const Error& error) {
    return error.failure();
  }
}

}  // namespace

std::vector<abi::CUmemAccessDesc> range::descriptors_of(std::span<const AccessGrant> grants) {
  std::vector<abi::CUmemAccessDesc> descriptors;
  descriptors.reserve(grants.size());
  for (const AccessGrant& each : grants) descriptors.push_back(driver::to_abi(each));
  return descriptors;
}

std::optional<range::Flaw> range::flaw_in(const AccessGrant& grant) {
  const int kind = static_cast<int>(grant.location.kind);
  if (kind < static_cast<int>(LocationKind::device) || kind > static_cast<int>(LocationKind::host_numa))
    return Flaw{"There is no such kind of location", "Name a device, the host, or a NUMA node of the host"};
  for (const AccessRights each : {AccessRights::none, AccessRights::read, AccessRights::read_write})
    if (grant.rights == each) return std::nullopt;
  return Flaw{fmt::format("There are no rights of the number {}", static_cast<int>(grant.rights)),
              "Grant AccessRights::read or read_write, or none"};
}

// Where its memory lies; as long as it has none, where that is to lie.
std::vector<Location> MappedRange::Impl::places() const {
  std::vector<Location> found;
  if (chunks_.empty()) found.push_back(properties_.location);
  for (const auto& chunk : chunks_) {
    const Location& place = chunk.second.properties().location;
    if (std::find(found.begin(), found.end(), place) == found.end()) found.push_back(place);
  }
  return found;
}

Result<void> MappedRange::Impl::grant(std::span<const AccessGrant> changes) {
  const auto is_of_host = [](const Location& location) { return location.kind != LocationKind::device; };
  for (const AccessGrant& each : changes) {
    if (auto flaw = range::flaw_in(each))
      return refusal("MappedRange::grant", to_string(each.location), std::move(flaw->rule), flaw->way_out,
                     "ACCESS-DESCRIPTORS");
    if (!is_of_host(each.location) || each.rights == AccessRights::none) continue;
    const bool device_memory = std::any_of(chunks_.begin(), chunks_.end(), [&](const auto& chunk) {
      return !is_of_host(chunk.second.properties().location);
    });
    if (device_memory || (chunks_.empty() && !is_of_host(properties_.location)))
      return refusal("MappedRange::grant", to_string(each.location), "Device memory cannot be granted to the host",
                     "Use memory of the host (LocationKind::host_numa), or copy", "ACCESS-HOST-LOCATION");
  }
  if (changes.empty()) return {};
  if (chunks_.empty()) {  // else the driver finds out what cannot be
    const Result<int> devices = try_device_count(driver());
    if (!devices) return devices.failure();
    for (const AccessGrant& each : changes)
      if (each.location.kind == LocationKind::device && (each.location.id < 0 || each.location.id >= *devices))
        return refusal("MappedRange::grant", to_string(each.location),
                       fmt::format("There is no such device; the driver has {}", *devices), "Name one that there is",
                       "ACCESS-DESCRIPTORS");
    if (auto unreachable = unreachable_in(driver(), "MappedRange::grant", changes, places())) return *unreachable;
  }
  std::vector<AccessGrant> after = changed(grants_, changes);
  std::vector<abi::CUmemAccessDesc> descriptors = range::descriptors_of(after);
  const std::vector<abi::CUmemAccessDesc> wanted = range::descriptors_of(changes);
  std::vector<abi::CUmemAccessDesc> previous = wanted;
  for (abi::CUmemAccessDesc& each : previous) each.flags = flags_in(descriptors_, each.location);

  for (auto first = chunks_.cbegin(); first != chunks_.cend();) {
    const auto run = addresses_->run_from(first, chunks_.cend());
    if (Result<void> granted = addresses_->set_access(run.extent, wanted); !granted) {
      const bool here_too = range::may_have_been_done(granted.failure());
      take_rights_back(here_too ? run.extent.end() : run.extent.offset, previous);
      return with_unreachable_told(granted.failure(), driver(), changes, places());
    }
    first = run.next;
  }
  grants_ = std::move(after);
  descriptors_ = std::move(descriptors);
  return {};
}

// Gives the chunks before `end` the rights that they had.
void MappedRange::Impl::take_rights_back(std::size_t end, std::span<const abi::CUmemAccessDesc> previous) {
  const auto last = chunks_.lower_bound(end);
  for (auto first = chunks_.cbegin(); first != last;) {
    const auto run = addresses_->run_from(first, last);
    if (Result<void> undone = addresses_->set_access(run.extent, previous); !undone)
      report_cleanup_failure(undone.failure());
    first = run.next;
  }
}

Result<void> MappedRange::Impl::revoke(const Location& location) {
  if (auto waited = wait_for_device("MappedRange::revoke"); !waited) return waited;
  const AccessGrant none{location, AccessRights::none};
  return grant(std::span(&none, 1));
}

std::vector<DeviceOrdinal> MappedRange::Impl::grant_where_reachable(std::span<const DeviceOrdinal> devices,
                                                                    AccessRights rights) {
  const std::vector<Location> memory = places();
  std::vector<AccessGrant> grants;
  std::vector<DeviceOrdinal> others;
  for (const DeviceOrdinal ordinal : devices) {
    const Device device = driver().device(ordinal);
    const bool reaches = std::all_of(memory.begin(), memory.end(), [&](const Location& place) {
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
