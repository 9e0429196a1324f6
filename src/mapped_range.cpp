#include "cuvmm/mapped_range.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <mutex>

#include "cuvmm/device.hpp"
#include "missing_device.hpp"
#include "peer_refusal.hpp"
#include "range/mapped_range_impl.hpp"
#include "refusal.hpp"
#include "windows_handles.hpp"

namespace cuvmm {

namespace {

constexpr std::size_t default_host_capacity = std::size_t{64} << 30;
constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 365 * 100);  // fits into nanoseconds

// What is wrong with the options by themselves.
std::optional<Failure> clash_in(const Driver& driver, const MappedRangeOptions& options) {
  const MemoryProperties& memory = options.memory;
  const auto refuse = [&](std::string arguments, std::string rule, std::string way_out, std::string_view rule_id = {}) {
    return invalid_use("MappedRange::create", std::move(arguments), std::move(rule), std::move(way_out), rule_id);
  };
  const bool on_device = memory.location.kind == LocationKind::device;
  if (auto flaw = range::flaw_in({memory.location, AccessRights::none}))
    return refuse(fmt::format("memory.location = {}", to_string(memory.location)), std::move(flaw->rule), flaw->way_out,
                  "CREATE-LOCATION");
  if (!on_device && memory.location.id < 0)
    return refuse(fmt::format("memory.location = {}", to_string(memory.location)),
                  "NUMA nodes of the host are numbered from 0", "Name one that there is, or Location::host()",
                  "CREATE-LOCATION");
  if (memory.location.id != 0)  // a driver without a device says so by itself
    if (auto missing = no_such_device(driver, memory.location))
      return refuse(fmt::format("memory.location = {}", to_string(memory.location)), std::move(*missing),
                    std::string(name_another_device), "CREATE-LOCATION");
  if (options.source && options.source->driver() != driver)
    return refuse("source", "Range and source must belong to the same driver", "Make both with one Driver");
  if (options.retire_queue && options.retire_queue->driver() != driver)
    return refuse("retire_queue", "Range and queue must belong to the same driver", "Make both with one Driver");
  if (options.capacity > SIZE_MAX / 2)
    return refuse(fmt::format("capacity = {}", options.capacity), "No machine has that many addresses",
                  "Leave it at 0 for as many as the device has memory", "RANGE-FITS");
  if (options.alignment != 0 && !is_power_of_two(options.alignment))
    return refuse(fmt::format("alignment = {}", options.alignment), "An alignment is a power of two",
                  "Leave it at 0 for the driver's own", "RESERVE-ALIGNMENT");
  if (options.device_wait < std::chrono::milliseconds::zero())
    return refuse(fmt::format("device_wait = {} ms", options.device_wait.count()), "A wait is not negative",
                  "0 asks once and does not wait");
  if (auto refused = host_handles_refused("MappedRange::create", memory)) return refused;
  if (!on_device && (memory.compression || memory.gpu_direct_rdma))
    return refuse(fmt::format("memory.location = {}", to_string(memory.location)),
                  "Compression and GPUDirect RDMA are features of device memory", "Leave them out for host memory");
  if (auto refused = windows_handles_refused("MappedRange::create", memory.handle_types)) return refused;
  if (options.require_features && !memory.compression && !memory.gpu_direct_rdma &&
      !memory.handle_types.contains(HandleType::fabric))
    return refuse(
        "require_features = true", "No feature is asked for that could be required",
        "Set memory.compression or memory.gpu_direct_rdma, name HandleType::fabric in memory.handle_types, or "
        "leave require_features out");
  for (auto each = options.grants.begin(); each != options.grants.end(); ++each) {
    if (auto flaw = range::flaw_in(*each))
      return refuse(fmt::format("grants: {}", to_string(each->location)), std::move(flaw->rule), flaw->way_out,
                    "ACCESS-DESCRIPTORS");
    if (on_device && each->location.kind != LocationKind::device)
      return refuse(fmt::format("grants: {}", to_string(each->location)), "Device memory cannot be granted to the host",
                    "Use memory of the host, or copy", "ACCESS-HOST-LOCATION");
    if (auto missing = no_such_device(driver, each->location))
      return refuse(fmt::format("grants: {}", to_string(each->location)), std::move(*missing),
                    std::string(name_another_device), "ACCESS-DESCRIPTORS");
    if (std::any_of(options.grants.begin(), each, [&](const AccessGrant& g) { return g.location == each->location; }))
      return refuse(fmt::format("grants: {} is named twice", to_string(each->location)),
                    "A location has one right to the range", "Name each location once");
  }
  return std::nullopt;
}

std::size_t wanted_capacity(const Driver& driver, const MappedRangeOptions& options, std::size_t granularity) {
  if (options.capacity != 0) return align_up(options.capacity, granularity);
  const Location& location = options.memory.location;
  if (location.kind != LocationKind::device) return default_host_capacity;
  return align_up(driver.device(DeviceOrdinal(location.id)).total_memory(), granularity);
}

Result<MappedRangeOptions> completed(const Driver& driver, MappedRangeOptions options) {
  if (auto clash = clash_in(driver, options)) return std::move(*clash);
  if (options.grants.empty()) options.grants = {{options.memory.location, AccessRights::read_write}};
  std::erase_if(options.grants, [](const AccessGrant& each) { return each.rights == AccessRights::none; });
  options.device_wait = std::min(options.device_wait, longest_wait);
  if (!options.source) options.source = PhysicalSource::create(driver);
  if (options.retire_queue) options.source->drain_under_pressure(options.retire_queue);
  return options;
}

}  // namespace

MappedRange::Impl::Impl(std::shared_ptr<range::RangeAddresses> addresses, MappedRangeOptions options,
                        std::size_t granularity)
    : addresses_(std::move(addresses)),
      granularity_(granularity),
      descriptors_(range::descriptors_of(options.grants)),
      uses_(std::make_shared<StreamUses>(addresses_->driver())),
      properties_(options.memory),
      grants_(options.grants),
      options_(std::move(options)) {}

std::string MappedRange::Impl::name() const {
  return fmt::format("range at {:#x} ({} mapped, {} reserved)", addresses_->address().value,
                     format_bytes(mapped_bytes_), format_bytes(addresses_->size()));
}

Failure MappedRange::Impl::refusal(std::string_view call, std::string arguments, std::string rule, std::string way_out,
                                   std::string_view rule_id) const {
  return invalid_use(call, arguments.empty() ? name() : fmt::format("{}, {}", name(), arguments), std::move(rule),
                     std::move(way_out), rule_id);
}

Failure MappedRange::Impl::nothing_left(std::string_view call) {
  return owns_nothing(call, "range");
}

Failure MappedRange::Impl::already_changing(std::string_view call) const {
  return refusal(call, {}, "The range is being changed, by a call that has not returned",
                 "A reclaim hook or an observer may ask the range that calls it, and change others");
}

RangePin MappedRange::Impl::pin(std::string reason) {
  if (reason.empty()) reason = "no reason was given";
  std::erase_if(pins_, [](const auto& each) { return each.expired(); });
  auto kept = std::make_shared<const std::string>(std::move(reason));
  pins_.push_back(kept);
  return RangePin(std::move(kept));
}

std::vector<std::string> MappedRange::Impl::pins() const {
  std::vector<std::string> reasons;
  for (const auto& each : pins_)
    if (const auto reason = each.lock()) reasons.push_back(*reason);
  return reasons;
}

RangeObservation MappedRange::Impl::observe(RangeObserver observer) {
  if (!observer.before_unmap && !observer.after_map && !observer.after_unmap)
    raise(refusal("MappedRange::observe", {}, "The observer is empty: it has no function to call",
                  "Set before_unmap, after_map or after_unmap"));
  std::erase_if(observers_, [](const auto& each) { return each.expired(); });
  auto kept = std::make_shared<const RangeObserver>(std::move(observer));
  observers_.push_back(kept);
  return RangeObservation(std::move(kept));
}

namespace {

// What could not be given back, for ever, where leak checkers see that it is on purpose.
struct Abandoned {
  std::mutex mutex;
  std::list<std::pair<range::ChunkMap, std::shared_ptr<range::RangeAddresses>>> ranges;
};

Abandoned& abandoned() {
  static Abandoned& all = *new Abandoned;
  return all;
}

}  // namespace

// Leaves everything as it is.
void MappedRange::Impl::abandon() noexcept {
  for (const auto& chunk : chunks_) addresses_->never_recycle(chunk.second);
  try {
    Abandoned& all = abandoned();
    const std::lock_guard lock(all.mutex);
    all.ranges.emplace_back();
    all.ranges.back() = {std::move(chunks_), addresses_};
  } catch (const std::bad_alloc&) {
    // The mappings are left all the same, and keep the memory; the addresses cannot be freed, which is reported.
  }
}

Result<MappedRange> MappedRange::try_create(const Driver& driver, const MappedRangeOptions& options) try {
  auto complete = completed(driver, options);
  if (!complete) return complete.failure();
  const std::span own(&options.memory.location, 1);
  if (auto unreachable = unreachable_in(driver, "MappedRange::create", complete->grants, own)) return *unreachable;
  const std::size_t granularity = PhysicalMemory::granularity(driver, options.memory);
  const std::size_t wanted = wanted_capacity(driver, options, granularity);
  const std::size_t least = options.capacity != 0 ? wanted : granularity;
  auto addresses = range::RangeAddresses::reserve(driver, wanted, least, granularity, options.alignment);
  if (!addresses) return addresses.failure();
  return MappedRange(std::make_unique<Impl>(std::move(addresses).value(), std::move(complete).value(), granularity));
} catch (const Error& error) {  // of the questions for granularity and memory
  return error.failure();
}

MappedRange MappedRange::create(const Driver& driver, const MappedRangeOptions& options) {
  return try_create(driver, options).value();
}

MappedRange::MappedRange(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
MappedRange::MappedRange(MappedRange&&) noexcept = default;
MappedRange& MappedRange::operator=(MappedRange&& other) noexcept {
  if (this == &other) return *this;
  if (impl_) impl_->end();  // while observers can still ask the range that ends
  impl_ = std::move(other.impl_);
  return *this;
}
MappedRange::~MappedRange() = default;

Result<std::size_t> MappedRange::try_append(std::size_t bytes) {
  return Impl::change(impl_, "MappedRange::append", [&](Impl& range) { return range.append(bytes, nullptr); });
}
Result<std::size_t> MappedRange::try_append(std::size_t bytes, const Location& location) {
  return Impl::change(impl_, "MappedRange::append", [&](Impl& range) { return range.append(bytes, &location); });
}
Result<std::size_t> MappedRange::try_append(const SharedPhysicalMemory& memory) {
  return try_append(std::span(&memory, 1));
}
Result<std::size_t> MappedRange::try_append(std::span<const SharedPhysicalMemory> memories) {
  return Impl::change(impl_, "MappedRange::append", [&](Impl& range) { return range.append(memories); });
}
std::size_t MappedRange::append(std::size_t bytes) {
  return try_append(bytes).value();
}
std::size_t MappedRange::append(std::size_t bytes, const Location& location) {
  return try_append(bytes, location).value();
}
std::size_t MappedRange::append(const SharedPhysicalMemory& memory) {
  return try_append(memory).value();
}
std::size_t MappedRange::append(std::span<const SharedPhysicalMemory> memories) {
  return try_append(memories).value();
}
Result<void> MappedRange::try_map(std::size_t offset, std::size_t bytes) {
  return Impl::change(impl_, "MappedRange::map", [&](Impl& range) { return range.map(offset, bytes); });
}
Result<void> MappedRange::try_map(std::size_t offset, const SharedPhysicalMemory& memory) {
  return Impl::change(impl_, "MappedRange::map",
                      [&](Impl& range) { return range.map("MappedRange::map", offset, std::span(&memory, 1)); });
}
Result<void> MappedRange::try_map(std::span<const MemoryAt> memories) {
  return Impl::change(impl_, "MappedRange::map", [&](Impl& range) { return range.map(memories); });
}
void MappedRange::map(std::span<const MemoryAt> memories) {
  try_map(memories).value();
}
void MappedRange::map(std::size_t offset, std::size_t bytes) {
  try_map(offset, bytes).value();
}
void MappedRange::map(std::size_t offset, const SharedPhysicalMemory& memory) {
  try_map(offset, memory).value();
}
Result<SharedPhysicalMemory> MappedRange::try_replace(std::size_t offset, const SharedPhysicalMemory& memory) {
  return Impl::change(impl_, "MappedRange::replace", [&](Impl& range) { return range.replace(offset, memory); });
}
SharedPhysicalMemory MappedRange::replace(std::size_t offset, const SharedPhysicalMemory& memory) {
  return try_replace(offset, memory).value();
}
Result<void> MappedRange::try_unmap(std::size_t offset, std::size_t bytes) {
  return Impl::change(impl_, "MappedRange::unmap",
                      [&](Impl& range) { return range.unmap("MappedRange::unmap", offset, bytes); });
}
Result<void> MappedRange::unmap_despite_pins(std::string_view call, std::size_t offset, std::size_t bytes) {
  return Impl::change(impl_, call,
                      [&](Impl& range) { return range.unmap(call, offset, bytes, Impl::Pins::overruled); });
}
Result<void> MappedRange::unmap_unused(std::string_view call, std::size_t offset, std::size_t bytes) {
  return Impl::change(impl_, call, [&](Impl& range) { return range.unmap_unused(call, {offset, bytes}); });
}
void MappedRange::unmap(std::size_t offset, std::size_t bytes) {
  try_unmap(offset, bytes).value();
}
Result<void> MappedRange::try_truncate(std::size_t bytes) {
  return Impl::change(impl_, "MappedRange::truncate", [&](Impl& range) { return range.truncate(bytes); });
}
void MappedRange::truncate(std::size_t bytes) {
  try_truncate(bytes).value();
}
void MappedRange::close() {
  Impl::change(impl_, "MappedRange::close", [](Impl& range) -> Result<void> {
    range.close();
    return {};
  }).value();
  impl_.reset();
}
Result<void> MappedRange::try_grant(std::span<const AccessGrant> grants) {
  return Impl::change(impl_, "MappedRange::grant", [&](Impl& range) { return range.grant(grants); });
}
void MappedRange::grant(std::span<const AccessGrant> grants) {
  try_grant(grants).value();
}
void MappedRange::grant(const Location& location, AccessRights rights) {
  const AccessGrant one{location, rights};
  grant(std::span(&one, 1));
}
Result<void> MappedRange::try_revoke(const Location& location) {
  return Impl::change(impl_, "MappedRange::revoke", [&](Impl& range) { return range.revoke(location); });
}
void MappedRange::revoke(const Location& location) {
  try_revoke(location).value();
}
std::vector<DeviceOrdinal> MappedRange::grant_where_reachable(std::span<const DeviceOrdinal> devices,
                                                              AccessRights rights) {
  return Impl::change(impl_, "MappedRange::grant_where_reachable",
                      [&](Impl& range) -> Result<std::vector<DeviceOrdinal>> {
                        return range.grant_where_reachable(devices, rights);
                      })
      .value();
}
StreamUses& MappedRange::uses() {
  return *owned(impl_, "MappedRange::uses", "range").uses_;
}
std::optional<CaptureId> MappedRange::used_on(CUstream_st* stream) {
  return owned(impl_, "MappedRange::used_on", "range").uses_->used_on(stream);
}
void MappedRange::no_longer_used_on(CUstream_st* stream) {
  owned(impl_, "MappedRange::no_longer_used_on", "range").uses_->no_longer_used_on(stream);
}
RangePin MappedRange::pin(std::string reason) {
  return owned(impl_, "MappedRange::pin", "range").pin(std::move(reason));
}
std::vector<std::string> MappedRange::pins() const {
  return impl_ ? impl_->pins() : std::vector<std::string>();
}
RangeObservation MappedRange::observe(RangeObserver observer) {
  return owned(impl_, "MappedRange::observe", "range").observe(std::move(observer));
}
DeviceAddress MappedRange::address() const noexcept {
  return impl_ ? impl_->addresses_->address() : DeviceAddress();
}
std::size_t MappedRange::size() const noexcept {
  return impl_ ? impl_->size_ : 0;
}
std::size_t MappedRange::mapped_bytes() const noexcept {
  return impl_ ? impl_->mapped_bytes_ : 0;
}
std::size_t MappedRange::capacity() const noexcept {
  return impl_ ? impl_->addresses_->size() : 0;
}
std::size_t MappedRange::granularity() const noexcept {
  return impl_ ? impl_->granularity_ : 0;
}
std::uint64_t MappedRange::generation() const noexcept {
  return impl_ ? impl_->generation_ : 0;
}
const MemoryProperties& MappedRange::properties() const {
  return owned(impl_, "MappedRange::properties", "range").properties_;
}
const std::vector<AccessGrant>& MappedRange::grants() const noexcept {
  static const std::vector<AccessGrant> none;
  return impl_ ? impl_->grants_ : none;
}
std::vector<ChunkInfo> MappedRange::chunks() const {
  std::vector<ChunkInfo> infos;
  if (!impl_) return infos;
  infos.reserve(impl_->chunks_.size());
  for (const auto& [offset, memory] : impl_->chunks_)
    infos.push_back({offset, memory.size(), memory.properties().location, false});
  return infos;
}
std::vector<ChunkInfo> MappedRange::quarantined() const {
  return impl_ ? impl_->addresses_->quarantined() : std::vector<ChunkInfo>();
}
SharedPhysicalMemory MappedRange::memory_at(std::size_t offset) const {
  if (!impl_) return {};
  const auto found = range::chunk_at_or_after(impl_->chunks_, offset);
  if (found == impl_->chunks_.end() || found->first > offset) return {};
  return found->second;
}
const Driver& MappedRange::driver() const {
  return owned(impl_, "MappedRange::driver", "range").driver();
}
const std::shared_ptr<PhysicalSource>& MappedRange::source() const {
  return owned(impl_, "MappedRange::source", "range").options_.source;
}

void append_all(std::span<const RangeAppend> appends) {
  try_append_all(appends).value();
}

}  // namespace cuvmm
