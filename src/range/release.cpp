// How a range gives memory back, and exchanges it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "backoff.hpp"
#include "peer_refusal.hpp"
#include "range/mapped_range_impl.hpp"
#include "report_exception.hpp"

namespace cuvmm {

using range::ChunkMap;

// Whether pins and borders of chunks allow it.
Result<void> MappedRange::Impl::allow_unmap(std::string_view call, const Extent& extent, Pins pins) const {
  const auto refuse = [&](std::string rule, std::string way_out, std::string_view rule_id = {}) {
    return refusal(call, fmt::format("offset = {}, bytes = {}", extent.offset, extent.bytes), std::move(rule),
                   std::move(way_out), rule_id);
  };
  const auto reasons = pins == Pins::heeded ? this->pins() : std::vector<std::string>();
  if (!reasons.empty())
    return refusal(call, {}, fmt::format("The range is pinned: {}", fmt::join(reasons, "; ")),
                   "Destroy the pins first: whoever holds one relies on the pages staying where they are");
  if (extent.offset > addresses_->size() || extent.bytes > addresses_->size() - extent.offset)
    return refuse(
        fmt::format("The range has {} of addresses, and the bytes end behind them", format_bytes(addresses_->size())),
        "Give fewer bytes: those of chunks(), or up to size()", "UNMAP-IN-RESERVATION");
  for (const std::size_t border : {extent.offset, extent.end()}) {
    const auto found = range::chunk_at_or_after(chunks_, border);
    if (found == chunks_.end() || found->first >= border) continue;
    return refuse(fmt::format("Chunks are unmapped whole, and one of {} begins at {}",
                              format_bytes(found->second.size()), format_bytes(found->first)),
                  "Give borders of chunks (chunks() lists them), or choose smaller ones with a ChunkPolicy",
                  "UNMAP-WHOLE-MAPPINGS");
  }
  return {};
}

Result<void> MappedRange::Impl::wait_for_device(std::string_view call) {
  const Result<void> waited = uses_->so_far().wait_for(options_.device_wait);
  return waited ? Result<void>() : wait_failure(call, waited.failure());
}

Failure MappedRange::Impl::wait_failure(std::string_view call, Failure failure) const {
  if (failure.code == 0) {  // not the driver's: too long a wait, or a graph that may still run
    failure.call = call;
    failure.arguments = fmt::format("{}, {}", name(), failure.arguments);
  }
  return failure;
}

// A copy: an observer may register others.
MappedRange::Impl::Observers MappedRange::Impl::observers() const {
  Observers all;
  for (const auto& each : observers_)
    if (auto observer = each.lock()) all.push_back(std::move(observer));
  return all;
}

// Until no address there waits to be unmapped.
Result<void> MappedRange::Impl::wait_for_retired(std::string_view call, const Extent& extent) {
  if (!addresses_->is_retiring(extent)) return {};
  const auto deadline = deadline_after(options_.device_wait);
  for (;;) {
    options_.retire_queue->poll();
    if (!addresses_->is_retiring(extent)) return {};
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  Failure failure = refusal(call, {},
                            fmt::format("Chunks that were unmapped between {} and {} wait for work of the device that "
                                        "is not done in time",
                                        extent.offset, extent.end()),
                            "Wait for the streams that used the range, or tell graph_gone() of captures");
  failure.kind = ErrorKind::timed_out;
  return failure;
}

// What an observer threw that cannot be passed on.
void MappedRange::Impl::report_observer(std::string_view callback, const Extent& extent) const noexcept {
  report_exception_of_callback(
      callback, [&] { return fmt::format("{}, offset = {}, bytes = {}", name(), extent.offset, extent.bytes); });
}

void MappedRange::Impl::tell_each(std::span<const std::shared_ptr<const RangeObserver>> observers, Callback callback,
                                  const Extent& extent) const noexcept {
  for (const auto& each : observers) {
    try {
      if ((*each).*callback) ((*each).*callback)(extent.offset, extent.bytes);
    } catch (...) {
      report_observer(callback == &RangeObserver::after_map ? "RangeObserver::after_map" : "RangeObserver::after_unmap",
                      extent);
    }
  }
}

// Chunks side by side are one.
std::vector<MappedRange::Impl::Extent> MappedRange::Impl::runs_in(const Extent& extent) const {
  std::vector<Extent> runs;
  for (auto each = chunks_.lower_bound(extent.offset); each != chunks_.end() && each->first < extent.end(); ++each) {
    if (runs.empty() || runs.back().end() != each->first)
      runs.push_back(range::extent_of(*each));
    else
      runs.back().bytes += each->second.size();
  }
  return runs;
}

// Those that were told before one throws hear that it did not happen. Returns what there is to tell the outcome of.
std::vector<MappedRange::Impl::Extent> MappedRange::Impl::tell_before_unmap(const Extent& extent) const {
  const auto all = observers();
  std::vector<Extent> runs = all.empty() ? std::vector<Extent>() : runs_in(extent);
  for (std::size_t told = 0; told < all.size(); ++told) {
    try {
      if (all[told]->before_unmap) all[told]->before_unmap(extent.offset, extent.bytes);
    } catch (...) {
      for (const Extent& each : runs) tell_each(std::span(all).first(told), &RangeObserver::after_map, each);
      throw;
    }
  }
  return runs;
}

// Of what they were told, some chunks may be gone and some are there.
void MappedRange::Impl::tell_outcome(std::span<const Extent> told) const noexcept {
  if (told.empty()) return;
  try {
    const auto all = observers();
    for (const Extent& run : told) {
      std::size_t gone = run.offset;  // from here on
      const auto tell_gone = [&](std::size_t end) {
        if (gone != end) tell_each(all, &RangeObserver::after_unmap, {gone, end - gone});
      };
      for (const Extent& each : runs_in(run)) {
        tell_gone(each.offset);
        tell_each(all, &RangeObserver::after_map, each);
        gone = each.end();
      }
      tell_gone(run.end());
    }
  } catch (const std::bad_alloc&) {
    report_cleanup_failure(Failure{});  // no memory left to tell anybody
  }
}

std::vector<MappedRange::Impl::Extent> MappedRange::Impl::tell_of_end(const Extent& extent) const {
  const auto all = observers();
  std::vector<Extent> runs = all.empty() ? std::vector<Extent>() : runs_in(extent);
  for (const auto& each : all) {
    try {
      if (each->before_unmap) each->before_unmap(extent.offset, extent.bytes);
    } catch (...) {
      report_observer("RangeObserver::before_unmap", extent);
    }
  }
  return runs;
}

void MappedRange::Impl::tell_after_map(const Extent& extent) const noexcept {
  if (observers_.empty()) return;
  try {
    tell_each(observers(), &RangeObserver::after_map, extent);
  } catch (const std::bad_alloc&) {
    report_cleanup_failure(Failure{});
  }
}

// Observers that were told hear of what stays, and of what does not, however the change ends.
template <class Change>
Result<void> MappedRange::Impl::tell_and_change(std::string_view call, const Extent& chunks, Pins pins, bool retires,
                                                Change&& change) {
  const std::vector<Extent> told = tell_before_unmap(chunks);
  try {
    // Observers may have pinned the range, or given work to the device.
    Result<void> result = observers_.empty() ? Result<void>() : allow_unmap(call, chunks, pins);
    if (result && !observers_.empty() && !retires) result = wait_for_device(call);
    if (result) result = change();
    tell_outcome(told);
    return result;
  } catch (...) {
    tell_outcome(told);
    throw;
  }
}

// From the first chunk there to the last.
MappedRange::Impl::Extent MappedRange::Impl::chunks_in(const Extent& extent) const {
  const auto first = chunks_.lower_bound(extent.offset);
  const auto behind = chunks_.lower_bound(extent.end());
  if (first == behind) return {extent.offset, 0};
  return {first->first, range::extent_of(*std::prev(behind)).end() - first->first};
}

void MappedRange::Impl::take_out(ChunkMap& released, const Extent& extent) {
  for (auto each = chunks_.lower_bound(extent.offset); each != chunks_.end() && each->first < extent.end();) {
    const auto next = std::next(each);
    mapped_bytes_ -= each->second.size();
    released.insert(chunks_.extract(each));
    each = next;
  }
}

void MappedRange::Impl::put_back(ChunkMap&& chunks) noexcept {
  mapped_bytes_ += range::bytes_of(chunks);
  chunks_.merge(std::move(chunks));
}

Result<void> MappedRange::Impl::unmap_now(const Extent& extent) {
  const std::size_t before = chunks_.size();
  const auto count_change = [&] {
    if (chunks_.size() != before) ++generation_;
  };
  try {
    Result<void> result = addresses_->unmap(chunks_, chunks_.lower_bound(extent.offset),
                                            chunks_.lower_bound(extent.end()), mapped_bytes_);
    count_change();
    return result;
  } catch (...) {
    count_change();
    throw;
  }
}

// Behind the device's work. What could not be retired is the range's as before.
Result<void> MappedRange::Impl::retire(const Extent& extent) {
  ChunkMap released;
  take_out(released, extent);
  if (released.empty()) return {};
  const std::size_t bytes = range::bytes_of(released);
  std::optional<range::RetiredChunks> retired;
  try {
    retired.emplace(addresses_, released);
    options_.retire_queue->retire(std::move(*retired), uses_->so_far(), bytes);
  } catch (const Error& error) {
    put_back(retired ? retired->take_back() : std::move(released));
    return error.failure();
  } catch (...) {
    put_back(retired ? retired->take_back() : std::move(released));
    throw;
  }
  ++generation_;
  return {};
}

Result<void> MappedRange::Impl::unmap(std::string_view call, std::size_t offset, std::size_t bytes, Pins pins) {
  const Extent extent{offset, bytes};
  if (auto allowed = allow_unmap(call, extent, pins); !allowed) return allowed;
  const Extent chunks = chunks_in(extent);
  if (chunks.bytes == 0) return {};
  // Observers are told when nothing but the driver itself can stand in the way.
  const bool retires = options_.retire_queue && pins == Pins::heeded;
  if (!retires)
    if (auto waited = wait_for_device(call); !waited) return waited;
  return tell_and_change(call, chunks, pins, retires, [&] { return retires ? retire(chunks) : unmap_now(chunks); });
}

Result<void> MappedRange::Impl::unmap_unused(std::string_view call, const Extent& extent) {
  // Observers were told of it, and may have given the device work with it.
  if (!observers_.empty()) return unmap(call, extent.offset, extent.bytes, Pins::overruled);
  if (auto allowed = allow_unmap(call, extent, Pins::overruled); !allowed) return allowed;
  const Extent chunks = chunks_in(extent);
  return chunks.bytes == 0 ? Result<void>() : unmap_now(chunks);
}

Result<void> MappedRange::Impl::truncate(std::size_t bytes) {
  const auto first = chunks_.lower_bound(bytes);
  if (first != chunks_.end()) {
    const std::size_t begin = first->first;
    if (auto unmapped = unmap("MappedRange::truncate", begin, range::end_of(chunks_) - begin); !unmapped)
      return unmapped;
  }
  size_ = std::min(size_, bytes);
  return {};
}

Result<void> MappedRange::Impl::remap(ChunkMap& chunk) {
  const auto& [offset, memory] = *chunk.begin();
  if (auto mapped = addresses_->map(offset, memory); !mapped) return mapped;
  if (descriptors_.empty()) return {};
  try {
    Result<void> granted = addresses_->set_access({offset, memory.size()}, descriptors_);
    if (granted) return granted;
    const Location place = memory.properties().location;
    quarantine_what_stays(std::move(chunk));
    return with_unreachable_told(granted.failure(), driver(), grants_, std::span(&place, 1));
  } catch (...) {
    quarantine_what_stays(std::move(chunk));
    throw;
  }
}

// The first of the chunks that can be mapped, or null. Of what fails, the first is told by the result, or thrown once
// the other is in place; the second is reported.
ChunkMap* MappedRange::Impl::remap_one_of(std::initializer_list<ChunkMap*> chunks, Result<void>& result,
                                          std::exception_ptr& thrown) {
  for (ChunkMap* each : chunks) {
    const bool first = result && !thrown;
    try {
      Result<void> placed = remap(*each);
      if (placed) return each;
      if (first) {
        result = std::move(placed);
      } else {
        report_cleanup_failure(placed.failure());
      }
    } catch (...) {
      if (first) {
        thrown = std::current_exception();
      } else {
        report_current_exception("MappedRange::replace");
      }
    }
  }
  return nullptr;
}

Result<SharedPhysicalMemory> MappedRange::Impl::replace(std::size_t offset, const SharedPhysicalMemory& memory) {
  const auto refuse = [&](std::string rule, std::string way_out, std::string_view rule_id = {}) {
    return refusal("MappedRange::replace", fmt::format("offset = {}", offset), std::move(rule), std::move(way_out),
                   rule_id);
  };
  const auto chunk = chunks_.find(offset);
  if (chunk == chunks_.end()) return refuse("No chunk begins there", "Give the offset of a chunk: chunks() lists them");
  if (!memory || memory.size() != chunk->second.size())
    return refuse(fmt::format("A chunk is replaced by memory of its own size, {}, and this has {}",
                              format_bytes(chunk->second.size()), memory ? format_bytes(memory.size()) : "none"),
                  "Acquire memory of that size from a source");
  if (memory.memory().driver() != driver())
    return refuse("Range and memory must come from the same driver", "Make both with one Driver");
  const Extent extent = range::extent_of(*chunk);
  if (auto flaw = flaw_in_place(extent, memory.properties().location))
    return refuse(std::move(flaw->rule), flaw->way_out, flaw->rule_id);
  if (auto allowed = allow_unmap("MappedRange::replace", extent); !allowed) return allowed.failure();
  if (auto waited = wait_for_device("MappedRange::replace"); !waited) return waited.failure();
  // What needs memory comes first.
  const SharedPhysicalMemory previous = chunk->second;
  ChunkMap with_new;
  ChunkMap with_previous;
  with_new.emplace(offset, memory);
  with_previous.emplace(offset, previous);
  ChunkMap* renewed = nullptr;
  Result<void> result;
  std::exception_ptr thrown;
  const Result<void> unmapped = tell_and_change("MappedRange::replace", extent, Pins::heeded, false, [&] {
    if (auto gone = unmap_now(extent); !gone) return gone;
    renewed = remap_one_of({&with_new, &with_previous}, result, thrown);
    if (renewed == nullptr) return Result<void>();
    if (renewed->begin()->second.properties().location != properties_.location) several_locations_ = true;
    put_back(std::move(*renewed));
    return Result<void>();
  });
  if (!unmapped) return unmapped.failure();
  if (thrown) std::rethrow_exception(thrown);
  if (renewed == nullptr) {
    Failure failure = result.failure();
    failure.rule += "; nor could the memory that lay there be mapped again, so nothing is mapped there now";
    return failure;
  }
  if (!result) return result.failure();
  return previous;
}

void MappedRange::Impl::close() {
  const Extent whole{0, range::end_of(chunks_)};
  allow_unmap("MappedRange::close", whole).value();
  wait_for_device("MappedRange::close").value();
  addresses_->clear_quarantine({0, addresses_->size()}).value();
  wait_for_retired("MappedRange::close", {0, addresses_->size()}).value();
  const auto told = chunks_.empty() ? std::vector<Extent>() : tell_before_unmap(chunks_in(whole));
  try {
    allow_unmap("MappedRange::close", whole).value();
    if (!observers_.empty()) wait_for_device("MappedRange::close").value();
  } catch (...) {
    tell_outcome(told);
    throw;
  }
  const auto conclude = [&] {
    size_ = range::end_of(chunks_);
    ++generation_;
    tell_outcome(told);
  };
  Result<void> unmapped;
  try {
    unmapped = addresses_->unmap(chunks_, chunks_.begin(), chunks_.end(), mapped_bytes_);
  } catch (...) {
    conclude();
    throw;
  }
  conclude();
  unmapped.value();
  addresses_->free();
}

// What the range still has when it goes.
void MappedRange::Impl::end() noexcept {
  changing_ = true;  // for good: observers cannot change what ends
  if (chunks_.empty()) return;
  const Extent whole = chunks_in({0, SIZE_MAX});
  std::vector<Extent> told;
  try {
    told = tell_of_end(whole);
  } catch (...) {
    report_current_exception("MappedRange::~MappedRange");
  }
  if (!give_all_back(whole)) abandon();
  tell_outcome(told);
}

// Retired behind the device's work, or unmapped after it. Where neither can be done it stays mapped for ever: better
// lost than taken from under running work.
bool MappedRange::Impl::give_all_back(const Extent& whole) noexcept {
  constexpr std::string_view call = "MappedRange::~MappedRange";
  try {
    if (options_.retire_queue && retire(whole)) return true;
  } catch (...) {
    report_current_exception(call);
  }
  try {
    // No queue, or no room in it.
    Result<void> given = wait_for_device(call);
    if (given) given = unmap_now(whole);
    if (given) return true;
    report_cleanup_failure(given.failure());
  } catch (...) {
    report_current_exception(call);
  }
  return chunks_.empty();
}

}  // namespace cuvmm
