#include "pool/device_pool.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "driver/convert.hpp"
#include "pool/told_as.hpp"
#include "refusal.hpp"
#include "report_exception.hpp"

namespace cuvmm::pool {

bool Budget::charge(std::size_t bytes) noexcept {
  std::size_t used = used_.load();
  do {
    if (limit_ != 0 && (used > limit_ || bytes > limit_ - used)) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

namespace {

std::vector<abi::CUmemAccessDesc> descriptors(const PoolOptions& options, const Location& own) {
  std::vector<abi::CUmemAccessDesc> all{driver::to_abi(AccessGrant{own, AccessRights::read_write})};
  for (const AccessGrant& each : options.grants)
    if (each.location != own && each.rights != AccessRights::none) all.push_back(driver::to_abi(each));
  return all;
}

}  // namespace

namespace {

// Both sides meet where an empty pool has room for each request: smaller ones share the regions of packed space.
std::optional<Failure> refusal_of(std::size_t large_from, std::size_t granularity, std::size_t device_bytes) {
  const auto refuse = [&](std::string rule, std::string way_out) {
    return invalid_use("Pool::create", fmt::format("large_from = {}", large_from), std::move(rule), std::move(way_out));
  };
  const std::size_t least = 16 * granularity, most = std::max(least, device_bytes / 4);
  if (!is_aligned(large_from, granularity) || large_from < least)
    return refuse(fmt::format("Large begins at a multiple of the granularity, {}, and at no less than 16 times that",
                              format_bytes(granularity)),
                  "Leave large_from as it is, or round it up");
  if (large_from > most)
    return refuse(fmt::format("Large begins at no more than a quarter of the device's memory, which is {}",
                              format_bytes(device_bytes)),
                  "Leave large_from as it is, or lower it");
  return std::nullopt;
}

}  // namespace

// Addresses cost nothing, and much of them saves unmapping; but there may be less room. Of the packed half each region
// must have room for what is not large.
Result<std::shared_ptr<DevicePool>> DevicePool::create(const PoolSetting& setting, DeviceOrdinal ordinal,
                                                       std::shared_ptr<Budget> budget,
                                                       const std::shared_ptr<DevicePool>& lender) try {
  const Device device = setting.driver.device(ordinal);
  const std::size_t granularity = device.granularity();
  const std::size_t large_from = setting.options.large_from;
  const std::size_t device_bytes = device.total_memory();
  if (auto refused = refusal_of(large_from, granularity, device_bytes)) return std::move(*refused);
  if (const std::size_t limit = budget->limit(); limit != 0 && limit < granularity)
    return invalid_use("Pool::create", fmt::format("budget = {}", limit),
                       fmt::format("Memory comes in pieces of {}, so that not one fits", format_bytes(granularity)),
                       "Give it more, or 0 for what there is");
  const std::size_t unit = 4 * granularity;
  const std::size_t least = align_up(std::max(device_bytes / 2, 2 * PackedSpace::all_regions * large_from), unit);
  for (std::size_t bytes = std::max(align_up(16 * device_bytes, unit), least);; bytes = align_up(bytes / 2, unit)) {
    auto reservation = AddressReservation::try_create(setting.driver, bytes);
    if (reservation)
      return std::make_shared<DevicePool>(setting, device, std::move(budget), lender, std::move(reservation).value());
    if (reservation.failure().kind != ErrorKind::out_of_address_space || bytes <= least) return reservation.failure();
  }
} catch (const Error& error) {
  return error.failure();
}

DevicePool::DevicePool(const PoolSetting& setting, const Device& device, std::shared_ptr<Budget> budget,
                       const std::shared_ptr<DevicePool>& lender, AddressReservation reservation)
    : last_charge_(budget),
      setting_(setting),
      device_(device),
      budget_(std::move(budget)),
      lender_(lender),
      properties_{.location = device.location()},
      granularity_(device.granularity()),
      device_bytes_(device.total_memory()),
      grants_(descriptors(setting.options, device.location())),
      reservation_(std::move(reservation)),
      border_(reservation_.size() / 2),
      packed_(border_, granularity_),
      spans_(reservation_.size() - border_) {}

DevicePool::~DevicePool() {
  last_charge_.bytes = numbers_.reserved_bytes;
}

// Those that are kept are found from here, so that a leak checker tells of none of them.
void DevicePool::keep_for_ever(std::shared_ptr<DevicePool> pool) noexcept {
  static std::atomic<DevicePool*> last_kept{nullptr};
  DevicePool& kept = *pool;
  kept.kept_before_ = last_kept.load();
  while (!last_kept.compare_exchange_weak(kept.kept_before_, &kept)) {
  }
  kept.itself_ = std::move(pool);
}

bool DevicePool::holds(DeviceAddress address) const noexcept {
  return address >= reservation_.address() && address.value - reservation_.address().value < reservation_.size();
}

std::shared_ptr<PoolStream> DevicePool::known_stream(CUstream_st* handle) const {
  const auto found = by_key_.find(StreamKey(handle));
  return found == by_key_.end() ? nullptr : found->second;
}

// The driver is asked about a stream once.
Result<std::shared_ptr<PoolStream>> DevicePool::stream_of(std::string_view call, CUstream_st* handle) try {
  StreamNumber number = 0;
  {
    const Lock lock(mutex_);
    if (auto known = known_stream(handle)) return known;
    streams_.emplace_back();
    number = static_cast<StreamNumber>(streams_.size());
  }
  auto made = std::make_shared<PoolStream>(setting_.driver, handle, number);
  made->uses.used_on(handle);
  const Lock lock(mutex_);
  const auto& kept = by_key_.try_emplace(StreamKey(handle), made).first->second;
  if (kept == made) streams_[number - 1] = made;
  return kept;
} catch (const Error& error) {
  return told_as(error.failure(), call);
}

// As long as they are hardly anything beside all memory, it is cheaper to have some more of them than to map.
bool DevicePool::few_splinters() const noexcept {
  return packed_.splinter_bytes() < 2 * granularity_ + numbers_.reserved_bytes / 64;
}

std::optional<std::size_t> DevicePool::take(const Request& request) {
  if (!is_large(request.rounded)) {
    const auto found = packed_.take(request.rounded, request.tenant());
    return found || !few_splinters() ? found : packed_.take_anywhere(request.rounded, request.tenant());
  }
  auto found = spans_.take(request.rounded, request.tenant());
  if (!found) found = spans_.take_part(request.rounded, request.tenant());
  if (found) *found += border_;
  return found;
}

void DevicePool::count_allocation(const Request& request, bool warm) {
  ++request.stream->live;
  ++numbers_.allocations;
  if (warm) ++numbers_.warm;
  ++numbers_.live_allocations;
  numbers_.live_bytes += request.asked;
  numbers_.peak_live_bytes = std::max(numbers_.peak_live_bytes, numbers_.live_bytes);
}

Result<DeviceAddress> DevicePool::allocate(std::size_t bytes, CUstream_st* handle) {
  if (bytes == 0)
    return invalid_use("Pool::allocate", "bytes = 0", "An allocation has a size", "Ask for 1 byte at least");
  auto stream = stream_of("Pool::allocate", handle);
  if (!stream) return stream.failure();
  Request request{bytes, 0, std::move(stream).value()};
  const std::size_t unit = bytes >= setting_.options.large_from ? granularity_ : PackedSpace::alignment;
  const auto rounded = checked_align_up(bytes, unit);
  if (!rounded || *rounded > device_bytes_) return larger_than_the_device(bytes, rounded);
  request.rounded = *rounded;
  {
    const Lock lock(mutex_);
    if (const auto found = take(request)) {
      count_allocation(request, true);
      return reservation_.address() + *found;
    }
  }
  auto offset = allocate_cold(request);
  if (!offset) return offset.failure();
  return reservation_.address() + *offset;
}

// The live allocation that begins there.
std::optional<Tenant> DevicePool::tenant_at(std::size_t offset) const {
  if (offset < border_) {
    const auto block = packed_.at(offset);
    if (block->first != offset || block->second.state != PackedSpace::State::live) return std::nullopt;
    return block->second.tenant;
  }
  const auto span = spans_.at(offset - border_);
  if (span == spans_.spans().end() || span->first != offset - border_ || span->second.state != SpanSpace::State::live)
    return std::nullopt;
  return span->second.tenant;
}

std::optional<PoolAllocation> DevicePool::describe(DeviceAddress address) const {
  if (!holds(address)) return std::nullopt;
  const std::size_t offset = address.value - reservation_.address().value;
  const Lock lock(mutex_);
  const auto found = [&](std::size_t begin, std::size_t bytes, const Tenant& tenant) {
    return PoolAllocation{reservation_.address() + begin,     tenant.asked, bytes, offset - begin, device(),
                          streams_[tenant.stream - 1]->handle};
  };
  if (offset < border_) {
    const auto block = packed_.at(offset);
    if (block->second.state != PackedSpace::State::live) return std::nullopt;
    return found(block->first, block->second.bytes, block->second.tenant);
  }
  const auto span = spans_.at(offset - border_);
  if (span == spans_.spans().end() || span->second.state != SpanSpace::State::live) return std::nullopt;
  return found(span->first + border_, span->second.bytes, span->second.tenant);
}

void DevicePool::detain(std::size_t offset) {
  offset < border_ ? packed_.detain(offset) : spans_.detain(offset - border_);
}

void DevicePool::give(std::size_t offset, const Claim& claim) {
  offset < border_ ? packed_.give(offset, claim) : spans_.give(offset - border_, claim);
}

Failure DevicePool::not_live(std::string_view call, DeviceAddress address) const {
  const std::string argument = fmt::format("address = {:#x}", address.value);
  if (const auto inside = describe(address))
    return invalid_use(call, argument,
                       fmt::format("It lies {} bytes inside the allocation that begins at {:#x}", inside->offset,
                                   inside->address.value),
                       "Pass the address that allocate() returned");
  return invalid_use(call, argument, "Nothing is allocated there: it was freed before, or never given out",
                     "Free each address that allocate() returned once");
}

// CU_STREAM_PER_THREAD has one handle, and is another stream in each thread.
Failure DevicePool::not_a_stream_of(DeviceAddress address, CUstream_st* handle, CUstream_st* own) const {
  const bool another_threads = handle == own && own == abi::per_thread_stream();
  return invalid_use(
      "Pool::free", fmt::format("address = {:#x}, stream = {}", address.value, fmt::ptr(handle)),
      fmt::format("It was allocated on {} {} and not used on this one, whose order says nothing about its uses",
                  another_threads ? "another thread's stream" : "stream", fmt::ptr(own)),
      another_threads ? "Free it in the thread that allocated it, or call used_on() in this one first"
                      : "Free it on the stream that it was allocated on, or name the other one to used_on() first");
}

Result<void> DevicePool::used_on(DeviceAddress address, CUstream_st* handle) {
  auto stream = stream_of("Pool::used_on", handle);
  if (!stream) return stream.failure();
  const std::size_t offset = address.value - reservation_.address().value;
  {
    const Lock lock(mutex_);
    if (const auto tenant = tenant_at(offset)) {
      if (tenant->stream == (*stream)->number) return {};
      Streams& users = users_[offset];
      if (std::find(users.begin(), users.end(), *stream) == users.end()) users.push_back(*stream);
      return {};
    }
  }
  return not_live("Pool::used_on", address);
}

Result<void> DevicePool::free(DeviceAddress address, CUstream_st* handle) {
  const std::size_t offset = address.value - reservation_.address().value;
  Tenant tenant;
  Streams users;
  {
    const Lock lock(mutex_);
    const auto found = tenant_at(offset);
    const auto stream = known_stream(handle);
    const auto others = users_.find(offset);
    const auto uses = [&] {
      if (!stream) return false;
      if (stream->number == found->stream) return true;
      return others != users_.end() &&
             std::find(others->second.begin(), others->second.end(), stream) != others->second.end();
    };
    if (found && !uses()) return not_a_stream_of(address, handle, streams_[found->stream - 1]->handle);
    if (found) {
      tenant = *found;
      PoolStream& owner = *streams_[tenant.stream - 1];
      --owner.live;
      --numbers_.live_allocations;
      numbers_.live_bytes -= tenant.asked;
      if (others == users_.end()) {
        give(offset, {tenant.stream, ++owner.freed});
        return {};
      }
      users = std::move(others->second);
      users_.erase(others);
      detain(offset);
    }
  }
  if (tenant.stream == everybody) return not_live("Pool::free", address);
  return free_behind_all(offset, tenant, std::move(users));
}

// Freed behind all its streams. Where that cannot be written down, it lives on.
Result<void> DevicePool::free_behind_all(std::size_t offset, const Tenant& tenant, Streams users) {
  std::shared_ptr<PoolStream> owner;
  {
    const Lock lock(mutex_);
    owner = streams_[tenant.stream - 1];
    numbers_.calls.events += users.size() + 1;
  }
  try {
    std::list<Deferred> made(1);
    made.front().offset = offset;
    made.front().work = work_of(*owner);
    for (const auto& each : users) made.front().work.merge(work_of(*each));
    const Lock lock(mutex_);
    deferred_.splice(deferred_.end(), made);
    return {};
  } catch (...) {
    const Lock lock(mutex_);
    offset < border_ ? packed_.readmit(offset, tenant) : spans_.readmit(offset - border_, tenant);
    users_[offset] = std::move(users);
    ++owner->live;
    ++numbers_.live_allocations;
    numbers_.live_bytes += tenant.asked;
    throw;
  }
}

Result<void> DevicePool::forget(CUstream_st* handle) {
  constexpr std::string_view call = "Pool::forget";
  const std::string argument = fmt::format("stream = {}", fmt::ptr(handle));
  std::shared_ptr<PoolStream> stream;
  {
    const Lock lock(mutex_);
    stream = known_stream(handle);
    if (!stream) return {};
    if (stream->live != 0)
      return invalid_use(call, argument, fmt::format("{} allocation(s) of the stream are live", stream->live),
                         "Free them first");
    for (const auto& [offset, users] : users_)
      if (std::find(users.begin(), users.end(), stream) != users.end())
        return invalid_use(
            call, argument,
            fmt::format("The allocation at {:#x} is used on it", (reservation_.address() + offset).value),
            "Free that first");
  }
  try {
    stream->uses.no_longer_used_on(handle);
  } catch (const Error& error) {
    return told_as(error.failure(), call);
  }
  const Lock lock(mutex_);
  by_key_.erase(StreamKey(handle));
  return {};
}

PoolStatistics DevicePool::statistics() const {
  const Lock lock(mutex_);
  PoolStatistics all = numbers_;
  const auto hole = [&](std::size_t bytes, bool pending) {
    if (pending) all.pending_bytes += bytes;
    if (bytes == 0) return;
    ++all.holes;
    all.largest_hole = std::max(all.largest_hole, bytes);
  };
  for (const auto& [offset, block] : packed_.blocks())
    if (block.state == PackedSpace::State::free) hole(block.bytes, block.claim.stream != everybody);
  for (const auto& [offset, span] : spans_.spans())
    if (span.state == SpanSpace::State::free) hole(span.bytes, span.claim.stream != everybody);
  for (const Deferred& each : deferred_)
    all.pending_bytes +=
        each.offset < border_ ? packed_.at(each.offset)->second.bytes : spans_.at(each.offset - border_)->second.bytes;
  all.recyclable_bytes = idle_bytes();
  return all;
}

}  // namespace cuvmm::pool
