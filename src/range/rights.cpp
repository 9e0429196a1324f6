// Who may access a range.
#include <fmt/format.h>

#include <algorithm>

#include "cuvmm/device.hpp"
#include "driver/convert.hpp"
#include "missing_device.hpp"
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
  if (grant.location.kind == LocationKind::host && grant.location.id != 0)
    return Flaw{"The host as such has no number", "Name Location::host(), or a NUMA node of the host"};
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

std::optional<Failure> MappedRange::Impl::missing_device(std::string_view call, const Location& location,
                                                         std::string_view rule_id) const {
  auto missing = no_such_device(driver(), location);
  if (!missing) return std::nullopt;
  return refusal(call, to_string(location), std::move(*missing), std::string(name_another_device), rule_id);
}

// Of two changes for one location the later counts, so that no rights may be what takes back the one before it.
bool MappedRange::Impl::takes_nothing(const AccessGrant& change, std::span<const AccessGrant> changes) const {
  if (change.rights != AccessRights::none || !rights_certain_) return false;
  const auto gives = [&](const AccessGrant& each) {
    return each.location == change.location && each.rights != AccessRights::none;
  };
  return std::none_of(grants_.begin(), grants_.end(), gives) && std::none_of(changes.begin(), changes.end(), gives);
}

Result<void> MappedRange::Impl::grant(std::span<const AccessGrant> asked, std::string_view call) try {
  const auto is_of_host = [](const Location& location) { return location.kind != LocationKind::device; };
  for (const AccessGrant& each : asked) {
    if (auto flaw = range::flaw_in(each))
      return refusal(call, to_string(each.location), std::move(flaw->rule), flaw->way_out, "ACCESS-DESCRIPTORS");
    if (!is_of_host(each.location) || each.rights == AccessRights::none) continue;
    const bool device_memory = std::any_of(chunks_.begin(), chunks_.end(), [&](const auto& chunk) {
      return !is_of_host(chunk.second.properties().location);
    });
    if (device_memory || (chunks_.empty() && !is_of_host(properties_.location)))
      return refusal(call, to_string(each.location), "Device memory cannot be granted to the host",
                     "Use memory of the host (LocationKind::host_numa), or copy", "ACCESS-HOST-LOCATION");
  }
  std::vector<AccessGrant> changes;
  std::copy_if(asked.begin(), asked.end(), std::back_inserter(changes),
               [&](const AccessGrant& each) { return !takes_nothing(each, asked); });
  const auto missing = [&]() -> std::optional<Failure> {
    for (const AccessGrant& each : asked)
      if (auto refused = missing_device(call, each.location, "ACCESS-DESCRIPTORS")) return refused;
    return std::nullopt;
  };
  // Else the driver finds out what cannot be.
  if (chunks_.empty() || changes.size() < asked.size())
    if (auto refused = missing()) return *refused;
  if (changes.empty()) return {};
  if (chunks_.empty())
    if (auto unreachable = unreachable_in(driver(), call, changes, places())) return *unreachable;
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
      if (granted.failure().kind == ErrorKind::invalid_use)
        if (auto refused = missing()) return *refused;
      return with_unreachable_told(granted.failure(), driver(), changes, places());
    }
    first = run.next;
  }
  grants_ = std::move(after);
  descriptors_ = std::move(descriptors);
  return {};
} catch (const Error& error) {  // of questions for devices
  return error.failure();
}

// Gives the chunks before `end` the rights that they had.
void MappedRange::Impl::take_rights_back(std::size_t end, std::span<const abi::CUmemAccessDesc> previous) {
  const auto last = chunks_.lower_bound(end);
  for (auto first = chunks_.cbegin(); first != last;) {
    const auto run = addresses_->run_from(first, last);
    if (Result<void> undone = addresses_->set_access(run.extent, previous); !undone) {
      rights_certain_ = false;
      report_cleanup_failure(undone.failure());
    }
    first = run.next;
  }
}

Result<void> MappedRange::Impl::revoke(const Location& location) {
  const AccessGrant none{location, AccessRights::none};
  const std::span one(&none, 1);
  if (!takes_nothing(none, one))
    if (auto waited = wait_for_device("MappedRange::revoke"); !waited) return waited;
  return grant(one, "MappedRange::revoke");
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
