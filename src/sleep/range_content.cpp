#include "sleep/range_content.hpp"

#include <atomic>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "sleep/borrowed_access.hpp"

namespace cuvmm::sleep {

namespace {

// An order, of no meaning.
struct ByKindAndNumber {
  bool operator()(const Location& one, const Location& other) const noexcept {
    return std::tie(one.kind, one.id) < std::tie(other.kind, other.id);
  }
};

}  // namespace

Result<void> copy_content_of_ranges(const Driver& driver, std::span<const MappedContent> content, Direction direction,
                                    const CopyOptions& options) {
  const AccessRights needed = direction == Direction::to_backup ? AccessRights::read : AccessRights::read_write;
  std::map<Location, std::vector<Piece>, ByKindAndNumber> pieces;
  std::map<Entry*, std::set<Location, ByKindAndNumber>> copiers;
  for (const MappedContent& each : content) {
    const Location copier = copier_of(each.entry->range, each.memory->properties.location, needed);
    copiers[each.entry].insert(copier);
    pieces[copier].push_back(
        {each.entry->range.address() + each.offset, each.memory->backup.get(), each.memory->at, each.memory->content});
  }
  std::vector<BorrowedAccess> borrowed;
  for (const auto& [entry, locations] : copiers)
    for (const Location& location : locations) {
      auto access = BorrowedAccess::borrow(entry->range, location, needed);
      if (!access) return access.failure();
      borrowed.push_back(std::move(access).value());
    }
  for (const auto& [copier, its_pieces] : pieces) {
    std::atomic<bool> copies_left = false;
    const auto left_behind = [&, &here = copier](abi::CUstream stream) {
      copies_left = true;
      for (const auto& [entry, locations] : copiers)
        if (locations.contains(here)) entry->leave_copy_to(stream);
    };
    auto copied = copier.kind == LocationKind::device ? copy_content(driver.device(DeviceOrdinal(copier.id)),
                                                                     its_pieces, direction, options, left_behind)
                                                      : copy_content_by_cpu(its_pieces, direction);
    if (copies_left)
      for (BorrowedAccess& each : borrowed) each.wait_before_it_ends();
    if (!copied) return copied;
  }
  return {};
}

}  // namespace cuvmm::sleep
