#include "sleep/falling_asleep.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "refusal.hpp"
#include "report_exception.hpp"
#include "sleep/borrowed_access.hpp"
#include "sleep/range_content.hpp"

namespace cuvmm::sleep {

namespace {

constexpr std::string_view sleeping = "SleepableMemory::sleep";

bool keeps_content(const Entry& entry) noexcept {
  return entry.policy.content != SleepingContent::discarded;
}

}  // namespace

FallingAsleep::FallingAsleep(const Driver& driver, const Entries& entries, Entries asleep)
    : driver_(driver), entries_(entries), asleep_(std::move(asleep)) {
  for (const auto& entry : asleep_)
    for (const Place& each : entry->places)
      if (each.memory->memory) known_.try_emplace({entry->tag, &each.memory->memory.memory()}, each.memory);
}

Result<void> FallingAsleep::plan(bool despite_pins) {
  for (const auto& each : entries_) {
    if (each->is_changing())
      return invalid_use(sleeping, each->description(), "It is being changed, by a call that has not returned",
                         "Let a reclaim hook put other groups to sleep than that of the range that grows");
    if (const auto pins = each->range.pins(); !pins.empty() && !despite_pins)
      return invalid_use(sleeping, each->description(), fmt::format("It is pinned: {}", fmt::join(pins, "; ")),
                         "Destroy the pins first (withdraw what is published, deregister), or pass "
                         "SleepOptions::despite_pins");
    each->size = each->range.size();
    for (const ChunkInfo& chunk : each->range.chunks()) add(*each, chunk);
  }
  add_what_stayed_mapped();
  return despite_pins ? Result<void>() : refuse_what_is_shared();
}

FallingAsleep::Found& FallingAsleep::found(Entry& entry, const SharedPhysicalMemory& share) {
  const auto [place, is_new] = index_.try_emplace({entry.tag, &share.memory()}, found_.size());
  if (!is_new) return found_[place->second];
  ++times_found_[&share.memory()];
  Found& found = found_.emplace_back();
  found.share = share;
  if (const auto known = known_.find({entry.tag, &share.memory()}); known != known_.end()) {
    found.memory = known->second;
    found.least_content = found.memory->content;
    found.own_shares = 1;
    for (const auto& sleeper : asleep_)
      found.own_shares += std::count_if(sleeper->places.begin(), sleeper->places.end(),
                                        [&](const Place& each) { return each.mapped && each.memory == found.memory; });
    return found;
  }
  found.memory = std::make_shared<SleepingMemory>();
  found.memory->properties = share.properties();
  found.memory->bytes = share.size();
  found.memory->source = entry.range.source();
  return found;
}

void FallingAsleep::add(Entry& entry, const ChunkInfo& chunk) {
  Found& found = this->found(entry, entry.range.memory_at(chunk.offset));
  ++found.own_shares;
  places_[&entry].push_back({chunk.offset, found.memory});
  const std::size_t content = chunk.offset < entry.size ? std::min(entry.size - chunk.offset, chunk.bytes) : 0;
  // Where it is mapped several times, most is kept that any of them wants to keep.
  const bool is_better = found.entry == nullptr || (keeps_content(entry) && !keeps_content(*found.entry)) ||
                         (keeps_content(entry) == keeps_content(*found.entry) && content > found.memory->content);
  if (!is_better) return;
  found.entry = &entry;
  found.offset = chunk.offset;
  if (keeps_content(entry) || !found.memory->backup) found.memory->content = std::max(found.least_content, content);
}

// Ranges that sleep have a place for it in their backups already.
void FallingAsleep::add_what_stayed_mapped() {
  for (const auto& entry : asleep_)
    for (const Place& each : entry->places) {
      if (!each.mapped || !each.memory->intact) continue;
      Found& found = this->found(*entry, each.memory->memory);
      if (found.entry != nullptr) continue;
      found.entry = entry.get();
      found.offset = each.offset;
    }
}

Result<void> FallingAsleep::refuse_what_is_shared() const {
  for (const Found& each : found_) {
    const long others = each.share.shares() - each.own_shares - times_found_.at(&each.share.memory());
    if (others > 0)
      return invalid_use(sleeping, fmt::format("{}, offset = {}", each.entry->description(), each.offset),
                         fmt::format("Its memory there has {} more share{}, so that it would not be given back", others,
                                     others == 1 ? "" : "s"),
                         "Put ranges that share memory into one group, drop other shares, or pass "
                         "SleepOptions::despite_pins");
  }
  return {};
}

Result<void> FallingAsleep::wait_for_work(Clock::time_point deadline) const {
  for (const auto& each : asleep_)
    if (auto left = each->wait_for_left_copies(sleeping, deadline); !left) return left;
  for (const auto& each : entries_) {
    if (auto left = each->wait_for_left_copies(sleeping, deadline); !left) return left;
    const Result<void> waited = each->range.uses().so_far().wait_until(deadline);
    if (waited) continue;
    Failure failure = waited.failure();
    if (failure.code == 0) {  // not the driver's
      failure.call = sleeping;
      failure.arguments = fmt::format("{}, {}", each->description(), failure.arguments);
    }
    return failure;
  }
  return {};
}

// A place for all that is copied through this range: the one that it has, if that is large enough.
Result<void> FallingAsleep::make_backup_of(Entry& entry) {
  std::size_t bytes = 0;
  for (const Found& each : found_)
    if (each.entry == &entry) {
      each.memory->at = bytes;
      bytes += each.memory->content;
    }
  if (bytes == 0) return {};
  if (!entry.backup || entry.backup->size() < bytes) {
    entry.backup.reset();  // before there is another one
    const Location copier = copier_of(entry.range, entry.range.properties().location, AccessRights::read);
    const DeviceOrdinal ordinal(copier.kind == LocationKind::device ? copier.id : 0);
    auto made = make_backup(driver_.device(ordinal), entry.policy, bytes);
    if (!made) return made.failure();
    entry.backup = std::move(made).value();
  }
  for (const Found& each : found_)
    if (each.entry == &entry && each.memory->content != 0) each.memory->backup = entry.backup;
  return {};
}

Result<void> FallingAsleep::save(const CopyOptions& options) {
  for (const auto& each : entries_)
    if (keeps_content(*each))
      if (auto made = make_backup_of(*each); !made) return made;
  std::vector<MappedContent> content;
  for (const Found& each : found_)
    if (each.memory->backup) {
      content.push_back({each.entry, each.offset, each.memory.get()});
      report_.bytes_saved += each.memory->content;
    }
  return copy_content_of_ranges(driver_, content, Direction::to_backup, options);
}

Result<void> FallingAsleep::unmap() {
  for (auto each = entries_.begin(); each != entries_.end(); ++each) {
    Entry& entry = **each;
    Places& places = places_[&entry];
    const std::size_t end = places.empty() ? 0 : places.back().offset + places.back().memory->bytes;
    if (auto unmapped = entry.unmap(sleeping, 0, end); !unmapped) {
      settle(each);
      map_again(entry, std::move(places));
      return unmapped;
    }
    entry.places = std::move(places);
    entry.state = State::asleep;
    ++report_.ranges;
  }
  Result<void> unmapped = unmap_what_stayed_mapped();
  settle(entries_.end());
  give_back_what_is_not_mapped(asleep_);
  return unmapped;
}

Result<void> FallingAsleep::unmap_what_stayed_mapped() {
  for (const auto& entry : asleep_)
    for (Place& each : entry->places) {
      if (!each.mapped) continue;
      if (auto unmapped = entry->unmap(sleeping, each.offset, each.memory->bytes); !unmapped) return unmapped;
      each.mapped = false;
    }
  return {};
}

// Says of all memory whether it is still there for those that sleep, with its bytes: a range has it mapped that was not
// put to sleep, or whose mapping could not be undone.
void FallingAsleep::settle(Entries::const_iterator first_awake) {
  std::set<const SleepingMemory*> stay;
  for (; first_awake != entries_.end(); ++first_awake)
    for (const Place& each : places_[first_awake->get()]) stay.insert(each.memory.get());
  for (const auto& entry : asleep_)
    for (const Place& each : entry->places)
      if (each.mapped) stay.insert(each.memory.get());
  for (const Found& each : found_) {
    each.memory->intact = stay.contains(each.memory.get());
    each.memory->memory = each.memory->intact ? each.share : SharedPhysicalMemory();
  }
}

// What the driver unmapped before it refused is mapped again, with all its bytes. Where that cannot be, the range is
// asleep, though parts of it are mapped.
void FallingAsleep::map_again(Entry& entry, Places places) {
  for (const ChunkInfo& chunk : entry.range.chunks())
    for (Place& each : places) each.mapped = each.mapped || each.offset == chunk.offset;
  for (Place& each : places) {
    if (each.mapped) continue;
    const Result<void> mapped = entry.range.try_map(each.offset, each.memory->memory);
    if (!mapped) report_cleanup_failure(mapped.failure());
    each.mapped = mapped.has_value();
  }
  if (std::all_of(places.begin(), places.end(), [](const Place& each) { return each.mapped; })) {
    if (auto restored = entry.restore_size(); !restored) report_cleanup_failure(restored.failure());
    return;
  }
  entry.places = std::move(places);
  entry.state = State::asleep;
}

FallingAsleep::~FallingAsleep() {
  try {
    give_back();
  } catch (...) {
    report_current_exception(sleeping);
  }
}

SleepReport FallingAsleep::give_back() {
  std::set<std::shared_ptr<PhysicalSource>> sources;
  for (const Found& each : found_) sources.insert(each.memory->source);
  for (Found& each : found_) {
    // What several groups share counts once, by whether anybody else has it.
    if (--times_found_.at(&each.share.memory()) == 0)
      (each.share.shares() == 1 ? report_.bytes_given_back : report_.bytes_held_by_others) += each.share.size();
    each.share = {};
  }
  found_.clear();
  if (report_.ranges == 0) return report_;
  for (const auto& each : sources) each->trim();  // what is kept for re-use is not given back
  return report_;
}

}  // namespace cuvmm::sleep
