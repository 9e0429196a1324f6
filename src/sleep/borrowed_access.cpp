#include "sleep/borrowed_access.hpp"

#include <algorithm>

#include "report_exception.hpp"

namespace cuvmm::sleep {

namespace {

bool suffices(AccessRights rights, AccessRights needed) noexcept {
  return static_cast<int>(rights) >= static_cast<int>(needed);
}

}  // namespace

Location copier_of(const MappedRange& range, const Location& memory, AccessRights needed) {
  const auto& grants = range.grants();
  const auto has_rights = [&](const AccessGrant& each) { return suffices(each.rights, needed); };
  const auto is_device = [](const AccessGrant& each) { return each.location.kind == LocationKind::device; };
  for (const AccessGrant& each : grants)
    if (has_rights(each) && is_device(each) && each.location == memory) return memory;
  for (const AccessGrant& each : grants)
    if (has_rights(each) && is_device(each)) return each.location;
  if (memory.kind == LocationKind::device) return memory;
  for (const AccessGrant& each : grants)
    if (has_rights(each)) return each.location;
  return Location::host();
}

Result<BorrowedAccess> BorrowedAccess::borrow(MappedRange& range, const Location& location, AccessRights rights) {
  const auto& grants = range.grants();
  const auto found =
      std::find_if(grants.begin(), grants.end(), [&](const AccessGrant& each) { return each.location == location; });
  const AccessGrant before{location, found == grants.end() ? AccessRights::none : found->rights};
  if (suffices(before.rights, rights)) return BorrowedAccess(nullptr, before);
  const AccessGrant needed{location, rights};
  if (auto granted = range.try_grant(std::span(&needed, 1)); !granted) return granted.failure();
  return BorrowedAccess(&range, before);
}

BorrowedAccess::~BorrowedAccess() {
  if (range_ == nullptr) return;
  try {
    Result<void> given_back;
    if (before_.rights == AccessRights::none || waits_) given_back = range_->try_revoke(before_.location);
    if (before_.rights != AccessRights::none && given_back) given_back = range_->try_grant(std::span(&before_, 1));
    if (!given_back) report_cleanup_failure(given_back.failure());
  } catch (...) {
    report_current_exception("MappedRange::grant");
  }
}

}  // namespace cuvmm::sleep
