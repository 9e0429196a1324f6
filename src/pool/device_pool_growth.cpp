// Allocations that need memory mapped.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backoff.hpp"
#include "clean_up.hpp"
#include "pool/device_pool.hpp"
#include "refusal.hpp"

namespace cuvmm::pool {

using driver::EntryPoint;
using driver::try_call;

namespace {

// Threads that lack memory hear of each other's attempts, and try again, but not for ever.
constexpr int most_rounds = 64;

}  // namespace

// First what the device is done with by now; then, for a little while, what it will soon be done with; then more
// memory; and where there is none, all that was freed, however long that takes within reason.
Result<std::size_t> DevicePool::allocate_cold(const Request& request) {
  // No wait will help.
  if (budget_->limit() != 0 && request.rounded > budget_->limit()) return out_of_memory(request, {});
  const auto found = [&]() -> std::optional<std::size_t> {
    const Lock lock(mutex_);
    const auto offset = take(request);
    if (offset) count_allocation(request, true);
    return offset;
  };
  const auto deadline = deadline_after(setting_.options.reuse_wait);
  poll();
  for (;;) {
    if (const auto offset = found()) return *offset;
    {
      const Lock lock(mutex_);
      if (idle_bytes() >= request.rounded || !waiting_may_help()) break;
    }
    if (Clock::now() >= deadline || !wait_for_progress(deadline)) break;
  }
  auto grown = grow(request, false);
  if (grown || !is_shortage(grown.failure())) return grown;
  look_for_destroyed_streams();
  const auto last = deadline_after(setting_.options.pressure_wait);
  for (int round = 1;; ++round) {
    if (const auto offset = found()) return *offset;
    grown = grow(request, true);
    if (grown || !is_shortage(grown.failure())) return grown;
    if (round == most_rounds || !(wait_for_progress(last) || lender_progresses(last)))
      return out_of_memory(request, grown.failure());
  }
}

Result<std::size_t> DevicePool::grow(const Request& request, bool sparing) {
  const InFlight here(*this);
  return is_large(request.rounded) ? grow_spans(request, sparing) : grow_packed(request, sparing);
}

// How large the chunks are that packed allocations get: few, but each so small beside all memory that it does not
// matter if something lives on in it.
std::size_t DevicePool::packed_chunk() const {
  const Lock lock(mutex_);
  return granularity_ * std::clamp<std::size_t>(std::bit_floor(numbers_.reserved_bytes / granularity_ / 512), 1, 16);
}

// In the region of its size; but where the pool would have to become larger for that, or memory is scarce, or splinters
// do not matter, wherever fewest granules are missing. A hole of another region is such a place, too.
std::optional<PackedSpace::Window> DevicePool::open_window(const Request& request, bool sparing) {
  const Lock lock(mutex_);
  const std::size_t own = packed_.region_for(request.rounded);
  auto best = packed_.find(request.rounded, request.stream->number, own);
  if (best && !sparing && !few_splinters()) {
    PackedSpace::Window window = packed_.open(best->place);
    if (numbers_.reserved_bytes + best->missing <= numbers_.peak_reserved_bytes + idle_bytes()) return window;
    packed_.close(window);
  }
  std::optional<PackedSpace::Fit> other;
  for (std::size_t region = 0; region < packed_.regions(); ++region) {
    const auto fit = region == own ? std::nullopt : packed_.find(request.rounded, request.stream->number, region);
    if (!fit) continue;
    if (!other || std::pair(fit->missing, fit->extent) < std::pair(other->missing, other->extent)) other = fit;
  }
  if (other && (!best || other->missing < best->missing)) best = other;
  if (!best) return std::nullopt;
  return packed_.open(best->place);
}

Result<std::size_t> DevicePool::grow_packed(const Request& request, bool sparing) {
  std::optional<PackedSpace::Window> window = open_window(request, sparing);
  if (!window) return out_of_addresses(request);
  const std::size_t largest = packed_chunk();
  std::vector<std::vector<Chunk>> backed;
  std::optional<Failure> failure;
  for (const Place& place : window->unmapped) {
    auto chunks = back(place, largest, sparing);
    if (!chunks) {
      failure = chunks.failure();
      break;
    }
    backed.push_back(std::move(chunks).value());
  }
  if (failure)
    for (auto& chunks : backed) unmap_again(chunks);
  const Lock lock(mutex_);
  if (failure) {
    packed_.close(*window);
    ripen(*request.stream);
    for (const auto& [offset, chunk] : quarantine_)
      if (offset < border_) packed_.shut({offset, chunk.bytes()});
    return std::move(*failure);
  }
  for (std::size_t i = 0; i < backed.size(); ++i) {
    std::size_t offset = window->unmapped[i].offset;
    for (Chunk& each : backed[i]) {
      const std::size_t bytes = each.bytes();
      packed_.add(offset, std::move(each));
      offset += bytes;
    }
  }
  packed_.let(*window, request.tenant());
  count_allocation(request, window->unmapped.empty());
  return window->place.offset;
}

// Beside free memory that stays where it is, if there is any with room for the rest; else at addresses of its own.
Result<std::size_t> DevicePool::grow_spans(const Request& request, bool sparing) {
  std::optional<SpanSpace::Kept> kept;
  std::optional<Place> missing;
  const auto addresses = [&] {
    const Lock lock(mutex_);
    if ((kept = spans_.keep(request.rounded, request.stream->number))) {
      missing = kept->missing;
    } else if (const auto offset = spans_.take_addresses(request.rounded)) {
      missing = Place{*offset, request.rounded};
    }
  };
  addresses();
  if (!missing) {
    loosen();
    addresses();
  }
  if (!missing) return out_of_addresses(request);
  const Place place{border_ + missing->offset, missing->bytes};
  Result<std::vector<Chunk>> chunks(std::vector<Chunk>{});
  if (place.bytes != 0) chunks = back(place, SIZE_MAX, sparing);
  const Lock lock(mutex_);
  if (!chunks) {
    give_addresses_outside_quarantine(place);
    if (kept) spans_.put_back(std::move(*kept));
    ripen(*request.stream);
    return chunks.failure();
  }
  const std::size_t offset = kept ? kept->begin() : missing->offset;
  if (kept) {
    spans_.extend(std::move(*kept), std::move(chunks).value(), request.tenant());
  } else {
    spans_.add(offset, std::move(chunks).value(), request.tenant());
  }
  count_allocation(request, place.bytes == 0);
  return border_ + offset;
}

// Memory behind all of the place, in chunks of at most that size.
Result<std::vector<Chunk>> DevicePool::back(const Place& place, std::size_t largest, bool sparing) {
  auto pieces = gather(place.bytes, largest, sparing);
  if (!pieces) return pieces.failure();
  return map(place, std::move(pieces).value());
}

Result<std::vector<Chunk>> DevicePool::map(const Place& place, std::vector<SharedPhysicalMemory>&& pieces) {
  std::vector<Chunk> chunks;
  chunks.reserve(pieces.size());
  std::optional<Failure> failure;
  std::size_t offset = place.offset;
  for (const SharedPhysicalMemory& each : pieces) {
    auto mapping = Mapping::try_create(reservation_, offset, each.memory());
    if (!mapping) {
      failure = mapping.failure();
      break;
    }
    chunks.push_back({each, std::move(mapping).value()});
    offset += each.size();
  }
  if (!failure) {
    const auto granted =
        try_call<EntryPoint::cuMemSetAccess>(setting_.driver.interface(), (reservation_.address() + place.offset).value,
                                             place.bytes, grants_.data(), grants_.size());
    if (!granted) failure = granted.failure();
  }
  {
    const Lock lock(mutex_);
    numbers_.calls.map += chunks.size();
    numbers_.mappings += chunks.size();
    ++numbers_.calls.set_access;
  }
  if (!failure) return chunks;
  std::vector<SharedPhysicalMemory> rest(pieces.begin() + static_cast<std::ptrdiff_t>(chunks.size()), pieces.end());
  unmap_again(chunks);
  keep_loose(rest);
  return std::move(*failure);
}

// What nobody has used yet. What the driver does not unmap keeps its addresses, out of use.
void DevicePool::unmap_again(std::vector<Chunk>& chunks) {
  std::vector<SharedPhysicalMemory> pieces;
  std::vector<Chunk> stuck;
  for (Chunk& each : chunks) {
    try {
      each.mapping.unmap();
      pieces.push_back(std::move(each.memory));
    } catch (const Error& error) {
      report_cleanup_failure(error.failure());
      stuck.push_back(std::move(each));
    }
  }
  const std::size_t unmapped = pieces.size();
  keep_loose(pieces);
  const Lock lock(mutex_);
  numbers_.calls.unmap += unmapped;
  numbers_.mappings -= unmapped;
  for (Chunk& each : stuck)
    quarantine_.emplace(each.mapping.address().value - reservation_.address().value, std::move(each));
  chunks.clear();
}

void DevicePool::give_addresses_outside_quarantine(const Place& place) {
  std::size_t begin = place.offset;
  const auto give_up_to = [&](std::size_t end) {
    if (end > begin) spans_.give_addresses({begin - border_, end - begin});
  };
  for (auto each = quarantine_.lower_bound(place.offset); each != quarantine_.end() && each->first < place.end();
       ++each) {
    give_up_to(each->first);
    begin = each->first + each->second.bytes();
  }
  give_up_to(place.end());
}

std::string DevicePool::tell_destroyed_streams() const {
  std::string handles;
  const Lock lock(mutex_);
  for (const auto& [key, stream] : by_key_)
    if (stream->destroyed) handles += fmt::format("{}{}", handles.empty() ? "" : ", ", fmt::ptr(stream->handle));
  return handles;
}

Failure DevicePool::out_of_memory(const Request& request, const Failure& cause) const {
  const PoolStatistics now = statistics();
  Failure failure = cause;
  failure.kind = ErrorKind::out_of_device_memory;
  failure.call = "Pool::allocate";
  failure.arguments =
      fmt::format("bytes = {} ({}), device = {}", request.asked, format_bytes(request.asked), device_.ordinal().value);
  failure.rule = fmt::format(
      "No memory is left after waiting for the device and recycling: {} exist for the pool, of which {} are live in {} "
      "allocations, {} wait for the device, {} can still be trimmed or recycled; the largest hole has {}",
      format_bytes(now.reserved_bytes), format_bytes(now.live_bytes), now.live_allocations,
      format_bytes(now.pending_bytes), format_bytes(now.recyclable_bytes), format_bytes(now.largest_hole));
  if (budget_->limit() != 0) failure.rule += fmt::format("; the budget is {}", format_bytes(budget_->limit()));
  if (!cause.rule.empty()) failure.rule += fmt::format(". What was missing: {}", cause.rule);
  const std::string destroyed = tell_destroyed_streams();
  if (!destroyed.empty())
    failure.rule += fmt::format(". Destroyed without forget(), so that their work cannot be followed: {}", destroyed);
  const bool beyond_budget = budget_->limit() != 0 && request.rounded > budget_->limit();
  failure.way_out = beyond_budget ? "Ask for less, or make the pool with a larger budget"
                    : !destroyed.empty()
                        ? "Call forget() with each stream that was destroyed, which waits for its context"
                    : budget_->limit() != 0 && now.reserved_bytes + request.rounded > budget_->limit()
                        ? "Free allocations, or make the pool with a larger budget"
                        : "Free allocations of this pool, or memory that others hold at the device";
  failure.asked_bytes = request.asked;
  failure.rounded_bytes = request.rounded;
  failure.live_bytes = now.live_bytes;
  failure.recyclable_bytes = now.recyclable_bytes;
  failure.largest_hole_bytes = now.largest_hole;
  return failure;
}

// Whatever is freed. `rounded`: none where that is no number of bytes.
Failure DevicePool::larger_than_the_device(std::size_t bytes, std::optional<std::size_t> rounded) const {
  Failure failure;
  failure.kind = ErrorKind::out_of_device_memory;
  failure.call = "Pool::allocate";
  failure.arguments = fmt::format("bytes = {} ({}), device = {}", bytes, format_bytes(bytes), device_.ordinal().value);
  failure.rule = fmt::format("The device has {} of memory in all", format_bytes(device_bytes_));
  failure.way_out = "Ask for less";
  failure.asked_bytes = bytes;
  failure.rounded_bytes = rounded;
  return failure;
}

Failure DevicePool::out_of_addresses(const Request& request) const {
  Failure failure;
  failure.kind = ErrorKind::out_of_address_space;
  failure.call = "Pool::allocate";
  failure.arguments = fmt::format("bytes = {} ({})", request.asked, format_bytes(request.asked));
  failure.rule = fmt::format("The pool has reserved {} of addresses, and no {} side by side are left",
                             format_bytes(reservation_.size()), format_bytes(request.rounded));
  failure.way_out = "Free allocations, or make the pool where more addresses are free";
  failure.asked_bytes = request.asked;
  failure.rounded_bytes = request.rounded;
  return failure;
}

}  // namespace cuvmm::pool
