#include "sleep/waking.hpp"

#include <algorithm>
#include <cstring>

#include "cuvmm/context.hpp"
#include "relaxed_capture_mode.hpp"
#include "report_exception.hpp"
#include "sleep/borrowed_access.hpp"
#include "sleep/range_content.hpp"
#include "sleep/stream.hpp"

namespace cuvmm::sleep {

namespace {

constexpr std::string_view waking = "SleepableMemory::wake";

// The bytes that belong to the content of that range.
std::size_t content_at(const Entry& entry, const Place& place) noexcept {
  return place.offset < entry.size ? std::min(entry.size - place.offset, place.memory->bytes) : 0;
}

Result<void> fill(const Driver& driver, Entry& entry, const Place& place, std::uint8_t value) {
  const Location copier = copier_of(entry.range, place.memory->properties.location, AccessRights::read_write);
  const std::size_t bytes = content_at(entry, place);
  const auto access = BorrowedAccess::borrow(entry.range, copier, AccessRights::read_write);
  if (!access) return access.failure();
  const DeviceAddress address = entry.range.address() + place.offset;
  if (copier.kind != LocationKind::device) {
    std::memset(address.as_pointer(), value, bytes);
    return {};
  }
  driver::Interface& interface = driver.interface();
  const RelaxedCaptureMode relaxed(interface);
  const CurrentContext context(driver.device(DeviceOrdinal(copier.id)));
  auto stream = Stream::create(interface, [&](abi::CUstream left) { entry.leave_copy_to(left); });
  if (!stream) return stream.failure();
  if (auto filled = stream->fill(address, value, bytes); !filled) return filled;
  return stream->finish();
}

}  // namespace

Waking::Waking(const Driver& driver, const Entries& entries) : driver_(driver), entries_(entries) {
  std::set<SleepingMemory*> known;
  for (const auto& entry : entries_)
    for (const Place& each : entry->places)
      if (known.insert(each.memory.get()).second) memories_.push_back(each.memory.get());
}

Result<void> Waking::wait_for_left_copies(std::chrono::steady_clock::time_point deadline) {
  for (const auto& each : entries_)
    if (auto waited = each->wait_for_left_copies(waking, deadline); !waited) return waited;
  return {};
}

Result<void> Waking::acquire() {
  for (SleepingMemory* each : memories_) {
    if (each->memory) continue;  // of an attempt that could not be undone
    auto memory = each->source->try_acquire(each->properties, each->bytes);
    if (!memory) return memory.failure();
    each->memory = std::move(memory).value();
  }
  return {};
}

Result<void> Waking::map() {
  std::size_t places = 0;
  for (const auto& entry : entries_) places += entry->places.size();
  mapped_.reserve(places);
  for (const auto& entry : entries_) {
    for (Place& place : entry->places) {
      if (place.mapped) continue;
      if (auto mapped = entry->range.try_map(place.offset, place.memory->memory); !mapped) return mapped;
      mapped_.push_back({entry.get(), &place});
      place.mapped = true;
    }
    if (auto restored = entry->restore_size(); !restored) return restored;
  }
  return {};
}

Result<void> Waking::restore(const CopyOptions& options, std::optional<std::uint8_t> poison) {
  std::vector<MappedContent> content;
  std::set<const SleepingMemory*> copied;
  for (const auto& entry : entries_)
    for (const Place& place : entry->places)
      if (place.memory->backup && !place.memory->intact && copied.insert(place.memory.get()).second) {
        content.push_back({entry.get(), place.offset, place.memory.get()});
        report_.bytes_restored += place.memory->content;
      }
  if (auto restored = copy_content_of_ranges(driver_, content, Direction::from_backup, options); !restored)
    return restored;
  return poison ? fill_discarded(*poison) : Result<void>();
}

Result<void> Waking::fill_discarded(std::uint8_t value) const {
  for (const auto& entry : entries_)
    for (const Place& place : entry->places)
      if (!place.memory->backup && !place.memory->intact && content_at(*entry, place) != 0)
        if (auto filled = fill(driver_, *entry, place, value); !filled) return filled;
  return {};
}

WakeReport Waking::commit() {
  for (SleepingMemory* each : memories_) report_.bytes_mapped += each->bytes;
  for (const auto& entry : entries_) {
    std::size_t lost = 0;
    for (const Place& place : entry->places)
      if (!place.memory->backup && !place.memory->intact) lost += content_at(*entry, place);
    if (lost != 0) report_.lost.push_back({entry->name, entry->range.address(), lost});
  }
  report_.ranges = entries_.size();
  committed_ = true;
  for (SleepingMemory* each : memories_) {
    each->memory = {};  // the ranges have it
    each->backup.reset();
  }
  for (const auto& entry : entries_) {
    entry->places.clear();
    entry->state = State::awake;
  }
  return std::move(report_);
}

void Waking::unmap(const MappedPlace& mapped) noexcept {
  try {
    const auto unmapped = mapped.entry->unmap_unused(waking, mapped.place->offset, mapped.place->memory->bytes);
    mapped.place->mapped = !unmapped;
    if (!unmapped) report_cleanup_failure(unmapped.failure());
  } catch (...) {
    report_current_exception(waking);
  }
}

Waking::~Waking() {
  if (committed_) return;
  for (; !mapped_.empty(); mapped_.pop_back()) unmap(mapped_.back());
  // Memory that stays mapped is taken when waking is tried again, as is what never was given back.
  give_back_what_is_not_mapped(entries_);
}

}  // namespace cuvmm::sleep
