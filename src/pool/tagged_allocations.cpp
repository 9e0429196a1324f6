#include "cuvmm/pool/tagged_allocations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "cuvmm/device.hpp"
#include "pool/home_process.hpp"
#include "pool/told_as.hpp"
#include "refusal.hpp"

namespace cuvmm {

using pool::owned_here;
using pool::telling_as;

namespace {

// On one line, whatever is in it.
std::string quoted(const std::string& tag) {
  std::string text = "\"";
  for (const char each : tag) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += each;
    }
  }
  return text + '"';
}

}  // namespace

class TaggedAllocations::Impl {
 public:
  Impl(const Pool& pool, const SleepableMemoryOptions& options)
      : driver_(pool.driver()),
        source_(pool.source()),
        options_(pool.options()),
        queue_(RetireQueue::create(driver_)),
        memory_(SleepableMemory::create(driver_, options)) {
    source_->drain_under_pressure(queue_);
  }

  struct Allocation {
    SleepableRange range;
    std::size_t bytes = 0;
    std::size_t rounded = 0;
  };

  DeviceAddress allocate(const std::string& tag, std::size_t bytes, CUstream_st* stream, const SleepPolicy& policy,
                         DeviceOrdinal device);
  [[nodiscard]] std::shared_ptr<Allocation> at(std::string_view call, DeviceAddress address) const;
  void free(DeviceAddress address);
  [[nodiscard]] std::optional<TaggedAllocation> describe(DeviceAddress address) const;
  [[nodiscard]] TagStatistics statistics(const std::string& tag) const;
  void set_budget(const std::string& tag, std::size_t bytes);
  [[nodiscard]] SleepableMemory& memory() noexcept { return memory_; }
  [[nodiscard]] const PoolOptions& options() const noexcept { return options_; }
  [[nodiscard]] const pool::HomeProcess& home() const noexcept { return home_; }
  void poll() { queue_->poll(); }

 private:
  class Charge;
  [[nodiscard]] Failure unknown(std::string_view call, DeviceAddress address) const;

  const pool::HomeProcess home_;
  const Driver driver_;
  const std::shared_ptr<PhysicalSource> source_;
  const PoolOptions options_;
  const std::shared_ptr<RetireQueue> queue_;
  SleepableMemory memory_;
  mutable std::mutex mutex_;  // guards the maps alone
  std::map<DeviceAddress, std::shared_ptr<Allocation>> all_;
  std::map<std::string, TagStatistics> tags_;  // asleep_bytes apart
};

// Bytes that count against the budget of a tag before there is memory behind them, so that requests at the same time
// never pass it together.
class TaggedAllocations::Impl::Charge {
 public:
  Charge(Impl& impl, const std::string& tag, std::size_t bytes, std::size_t rounded)
      : impl_(impl), bytes_(bytes), rounded_(rounded) {
    const std::lock_guard lock(impl_.mutex_);
    TagStatistics& now = impl_.tags_[tag];
    if (now.budget != 0 && (now.rounded_bytes > now.budget || rounded > now.budget - now.rounded_bytes))
      raise(refusal(tag, now));
    now.rounded_bytes += rounded;
    now_ = &now;
  }
  // What did not come to live.
  ~Charge() {
    if (now_ == nullptr) return;
    const std::lock_guard lock(impl_.mutex_);
    now_->rounded_bytes -= rounded_;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  Charge(Charge&&) = delete;
  Charge& operator=(Charge&&) = delete;

  // It lives now. With the lock.
  void keep() noexcept {
    TagStatistics& now = *std::exchange(now_, nullptr);
    now.live_bytes += bytes_;
    ++now.live_allocations;
    now.peak_live_bytes = std::max(now.peak_live_bytes, now.live_bytes);
    now.peak_rounded_bytes = std::max(now.peak_rounded_bytes, now.rounded_bytes);
  }

 private:
  [[nodiscard]] Failure refusal(const std::string& tag, const TagStatistics& now) const {
    Failure failure = invalid_use(
        "TaggedAllocations::allocate", fmt::format("tag = {}, bytes = {}", quoted(tag), bytes_),
        fmt::format("The tag has {} of its budget of {}", format_bytes(now.rounded_bytes), format_bytes(now.budget)),
        "Free something of the tag, or raise its budget (set_budget)");
    failure.kind = ErrorKind::out_of_device_memory;
    failure.asked_bytes = bytes_;
    failure.rounded_bytes = rounded_;
    failure.live_bytes = now.rounded_bytes;
    return failure;
  }

  Impl& impl_;
  const std::size_t bytes_;
  const std::size_t rounded_;
  TagStatistics* now_ = nullptr;  // entries are never erased
};

namespace {

Failure no_tag(std::string_view call) {
  return invalid_use(call, "tag = \"\"", "A tag has a name", "Name it");
}

// Whatever is freed or sleeps.
Failure larger_than_the_device(const std::string& tag, std::size_t bytes, std::size_t most) {
  Failure failure = invalid_use("TaggedAllocations::allocate", fmt::format("tag = {}, bytes = {}", quoted(tag), bytes),
                                fmt::format("The device has {} of memory in all", format_bytes(most)), "Ask for less");
  failure.kind = ErrorKind::out_of_device_memory;
  failure.asked_bytes = bytes;
  return failure;
}

}  // namespace

DeviceAddress TaggedAllocations::Impl::allocate(const std::string& tag, std::size_t bytes, CUstream_st* stream,
                                                const SleepPolicy& policy, DeviceOrdinal device) {
  constexpr std::string_view call = "TaggedAllocations::allocate";
  if (bytes == 0) raise(invalid_use(call, "bytes = 0", "An allocation has a size", "Ask for 1 byte at least"));
  if (tag.empty()) raise(no_tag(call));
  if (std::find(options_.devices.begin(), options_.devices.end(), device) == options_.devices.end())
    raise(invalid_use(call, fmt::format("device = {}", device.value), "The pool was not made for that device",
                      "Name it in PoolOptions::devices"));
  const std::size_t most = driver_.device(device).total_memory();
  if (bytes > most) raise(larger_than_the_device(tag, bytes, most));
  queue_->poll();
  const Location location = Location::device(device);
  std::vector<AccessGrant> grants{{location}};
  for (const AccessGrant& each : options_.grants)
    if (each.location != location) grants.push_back(each);
  auto range = MappedRange::create(driver_, {.capacity = bytes,
                                             .memory = {.location = location},
                                             .grants = std::move(grants),
                                             .chunks = ChunkPolicy::exact(),
                                             .source = source_,
                                             .retire_queue = queue_});
  const std::size_t rounded = align_up(bytes, range.granularity());
  Charge charge(*this, tag, bytes, rounded);
  range.append(bytes);
  range.used_on(stream);
  const DeviceAddress address = range.address();
  auto made = std::make_shared<Allocation>(Allocation{memory_.add(tag, std::move(range), policy), bytes, rounded});
  const std::lock_guard lock(mutex_);
  all_.emplace(address, std::move(made));
  charge.keep();
  return address;
}

Failure TaggedAllocations::Impl::unknown(std::string_view call, DeviceAddress address) const {
  return invalid_use(call, fmt::format("address = {:#x}", address.value),
                     "No allocation begins there: it was freed before, or never given out",
                     "Pass an address that allocate() returned");
}

std::shared_ptr<TaggedAllocations::Impl::Allocation> TaggedAllocations::Impl::at(std::string_view call,
                                                                                 DeviceAddress address) const {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(address);
  if (found == all_.end()) raise(unknown(call, address));
  return found->second;
}

// What it owns is given back after the lock.
void TaggedAllocations::Impl::free(DeviceAddress address) {
  decltype(all_)::node_type freed;
  {
    const std::lock_guard lock(mutex_);
    freed = all_.extract(address);
    if (freed) {
      TagStatistics& now = tags_.at(freed.mapped()->range.tag());
      now.live_bytes -= freed.mapped()->bytes;
      now.rounded_bytes -= freed.mapped()->rounded;
      --now.live_allocations;
    }
  }
  if (!freed) raise(unknown("TaggedAllocations::free", address));
}

std::optional<TaggedAllocation> TaggedAllocations::Impl::describe(DeviceAddress address) const {
  const std::lock_guard lock(mutex_);
  const auto next = all_.upper_bound(address);
  if (next == all_.begin()) return std::nullopt;
  const auto& [begin, allocation] = *std::prev(next);
  if (address.value - begin.value >= allocation->bytes) return std::nullopt;
  return TaggedAllocation{begin, allocation->bytes, allocation->range.tag()};
}

TagStatistics TaggedAllocations::Impl::statistics(const std::string& tag) const {
  const std::lock_guard lock(mutex_);
  const auto found = tags_.find(tag);
  if (found == tags_.end()) return {};
  TagStatistics now = found->second;
  for (const auto& [address, allocation] : all_)
    if (allocation->range.tag() == tag && allocation->range.asleep()) now.asleep_bytes += allocation->rounded;
  return now;
}

void TaggedAllocations::Impl::set_budget(const std::string& tag, std::size_t bytes) {
  if (tag.empty()) raise(no_tag("TaggedAllocations::set_budget"));
  const std::lock_guard lock(mutex_);
  tags_[tag].budget = bytes;
}

TaggedAllocations::TaggedAllocations(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
TaggedAllocations::TaggedAllocations(TaggedAllocations&&) noexcept = default;
TaggedAllocations& TaggedAllocations::operator=(TaggedAllocations&&) noexcept = default;
TaggedAllocations::~TaggedAllocations() = default;

TaggedAllocations TaggedAllocations::create(const Pool& pool, const SleepableMemoryOptions& options) {
  return telling_as("TaggedAllocations::create",
                    [&] { return TaggedAllocations(std::make_unique<Impl>(pool, options)); });
}

DeviceAddress TaggedAllocations::allocate(const std::string& tag, std::size_t bytes, CUstream_st* stream,
                                          const SleepPolicy& policy) {
  const Impl& impl = owned_here(impl_, "TaggedAllocations::allocate", "allocations");
  return allocate(tag, bytes, stream, policy, impl.options().devices.front());
}

DeviceAddress TaggedAllocations::allocate(const std::string& tag, std::size_t bytes, CUstream_st* stream,
                                          const SleepPolicy& policy, DeviceOrdinal device) {
  constexpr std::string_view call = "TaggedAllocations::allocate";
  Impl& impl = owned_here(impl_, call, "allocations");
  return telling_as(call, [&] { return impl.allocate(tag, bytes, stream, policy, device); });
}

void TaggedAllocations::used_on(DeviceAddress address, CUstream_st* stream) {
  constexpr std::string_view call = "TaggedAllocations::used_on";
  const auto allocation = owned_here(impl_, call, "allocations").at(call, address);
  telling_as(call, [&] { allocation->range.range().used_on(stream); });
}

void TaggedAllocations::free(DeviceAddress address) {
  Impl& impl = owned_here(impl_, "TaggedAllocations::free", "allocations");
  impl.free(address);
  impl.poll();
}

SleepReport TaggedAllocations::sleep(const std::string& tag, const SleepOptions& options) {
  constexpr std::string_view call = "TaggedAllocations::sleep";
  Impl& impl = owned_here(impl_, call, "allocations");
  return telling_as(call, [&] { return impl.memory().sleep(tag, options); });
}

WakeReport TaggedAllocations::wake(const std::string& tag) {
  constexpr std::string_view call = "TaggedAllocations::wake";
  Impl& impl = owned_here(impl_, call, "allocations");
  return telling_as(call, [&] { return impl.memory().wake(tag); });
}

GroupState TaggedAllocations::state(const std::string& tag) const {
  constexpr std::string_view call = "TaggedAllocations::state";
  Impl& impl = owned_here(impl_, call, "allocations");
  return telling_as(call, [&] { return impl.memory().state(tag); });
}

std::vector<std::string> TaggedAllocations::tags() const {
  return owned_here(impl_, "TaggedAllocations::tags", "allocations").memory().tags();
}

std::optional<TaggedAllocation> TaggedAllocations::describe(DeviceAddress address) const {
  return owned_here(impl_, "TaggedAllocations::describe", "allocations").describe(address);
}

std::size_t TaggedAllocations::live_bytes(const std::string& tag) const {
  return owned_here(impl_, "TaggedAllocations::live_bytes", "allocations").statistics(tag).live_bytes;
}

void TaggedAllocations::set_budget(const std::string& tag, std::size_t bytes) {
  owned_here(impl_, "TaggedAllocations::set_budget", "allocations").set_budget(tag, bytes);
}

TagStatistics TaggedAllocations::statistics(const std::string& tag) const {
  return owned_here(impl_, "TaggedAllocations::statistics", "allocations").statistics(tag);
}

}  // namespace cuvmm
