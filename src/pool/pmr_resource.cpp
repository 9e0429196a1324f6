#include "cuvmm/pool/pmr_resource.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <optional>

#include "cuvmm/mapped_range.hpp"
#include "pool/holes.hpp"
#include "refusal.hpp"
#include "report_exception.hpp"

namespace cuvmm {

namespace {

constexpr std::size_t unit = 64;  // of sizes and offsets: no two allocations share a cache line

// Why there was none.
class NoMemory : public std::bad_alloc {
 public:
  explicit NoMemory(const Failure& failure) : why_(failure) {}  // NOLINT(bugprone-throw-keyword-missing): kept
  [[nodiscard]] const char* what() const noexcept override { return why_.what(); }

 private:
  Error why_;  // whose copies do not throw
};

[[noreturn]] void raise_as_standard(const Failure& failure) {
  if (is_shortage(failure) || failure.kind == ErrorKind::out_of_address_space) throw NoMemory(failure);
  raise(failure);
}

// For what no driver could serve, whatever it holds.
void check_addressable(std::size_t bytes, std::size_t alignment) {
  constexpr std::size_t most = std::size_t{1} << 49;  // addresses that devices have
  if (bytes <= most && (alignment <= most || !is_power_of_two(alignment))) return;
  Failure failure;
  failure.kind = ErrorKind::out_of_address_space;
  failure.call = "HostMemoryResource::allocate";
  failure.arguments = fmt::format("bytes = {}, alignment = {}", bytes, alignment);
  failure.rule = "Devices have no more than 2^49 addresses";
  failure.way_out = "Ask for less";
  throw NoMemory(failure);
}

void check(const HostMemoryOptions& options) {
  if (options.location.kind == LocationKind::device)
    raise(invalid_use("HostMemoryResource", fmt::format("location = {}", to_string(options.location)),
                      "The host cannot be given access to device memory", "Name the host, or one of its NUMA nodes",
                      "ACCESS-HOST-LOCATION"));
}

}  // namespace

class HostMemoryResource::Impl {
 public:
  Impl(const Driver& driver, const HostMemoryOptions& options)
      : driver_(driver),
        options_(options),
        source_(options.source ? options.source : PhysicalSource::create(driver)),
        packed_(MappedRange::create(driver, range_options(0, 0))) {}

  void* allocate(std::size_t bytes, std::size_t alignment);
  void deallocate(void* pointer, std::size_t bytes) noexcept;
  std::size_t trim();
  [[nodiscard]] std::size_t live_bytes() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }
  [[nodiscard]] std::size_t reserved_bytes() const {
    const std::lock_guard lock(mutex_);
    return mapped_ + large_bytes_;
  }

 private:
  using Sizes = std::map<std::size_t, std::size_t>;

  [[nodiscard]] MappedRangeOptions range_options(std::size_t capacity, std::size_t alignment) const;
  void* allocate_large(std::size_t bytes, std::size_t alignment);
  void grow(std::size_t bytes);
  void take_in(std::size_t from);
  [[nodiscard]] Failure not_live(const void* pointer, std::size_t bytes) const {
    return invalid_use("HostMemoryResource::deallocate", fmt::format("pointer = {}, bytes = {}", pointer, bytes),
                       "Nothing of that size is allocated there", "Deallocate each pointer once, with its size");
  }

  const Driver driver_;
  const HostMemoryOptions options_;
  const std::shared_ptr<PhysicalSource> source_;

  // Held while the packed range is changed: who needs more memory waits for others who do.
  std::mutex growing_;
  MappedRange packed_;

  mutable std::mutex mutex_;  // guards what follows; held while no driver is called
  pool::Holes holes_;
  Sizes packed_sizes_;  // of what is allocated there, by its offset
  std::map<DeviceAddress, MappedRange> large_;
  std::size_t mapped_ = 0;       // bytes of packed_
  std::size_t large_bytes_ = 0;  // bytes of all ranges in large_
  std::size_t live_ = 0;
};

MappedRangeOptions HostMemoryResource::Impl::range_options(std::size_t capacity, std::size_t alignment) const {
  MappedRangeOptions options{.capacity = capacity, .memory = {.location = options_.location}};
  options.grants.push_back({Location::host()});
  for (const DeviceOrdinal device : options_.devices) options.grants.push_back({Location::device(device)});
  if (capacity != 0) options.chunks = ChunkPolicy::exact();
  options.alignment = alignment;
  options.source = source_;
  return options;
}

void* HostMemoryResource::Impl::allocate(std::size_t bytes, std::size_t alignment) {
  check_addressable(bytes, alignment);
  const std::size_t granularity = packed_.granularity();
  if (bytes >= options_.large_from || alignment > granularity) return allocate_large(bytes, alignment);
  const std::size_t rounded = align_up(std::max<std::size_t>(bytes, 1), unit);
  Sizes made{{0, rounded}};  // beforehand, so that nothing fails once there is a place
  const auto take = [&]() -> std::optional<DeviceAddress> {
    const std::lock_guard lock(mutex_);
    const auto found = holes_.take(rounded, std::max(alignment, unit), unit);
    if (!found) return std::nullopt;
    auto entry = made.extract(made.begin());
    entry.key() = *found;
    packed_sizes_.insert(std::move(entry));
    live_ += rounded;
    return packed_.address() + *found;
  };
  if (const auto found = take()) return found->as_pointer();
  const std::lock_guard growing(growing_);
  for (;;) {
    if (const auto found = take()) return found->as_pointer();
    grow(rounded + (alignment > unit ? alignment - unit : 0));
  }
}

// What the last hole lacks, and whatever comes with it. With growing_.
void HostMemoryResource::Impl::grow(std::size_t bytes) {
  const std::size_t size = packed_.size();
  std::size_t there = 0;
  {
    const std::lock_guard lock(mutex_);
    there = holes_.ending_at(size).bytes;
  }
  auto grown = packed_.try_append(bytes > there ? bytes - there : bytes);
  if (!grown) raise_as_standard(grown.failure());
  take_in(size);
}

// All of the chunks is content, and what lies behind `from` is a hole. With growing_.
void HostMemoryResource::Impl::take_in(std::size_t from) {
  if (const std::size_t rest = packed_.mapped_bytes() - packed_.size(); rest != 0) packed_.append(rest);
  const std::lock_guard lock(mutex_);
  mapped_ = packed_.mapped_bytes();
  if (packed_.size() > from) static_cast<void>(holes_.give({from, packed_.size() - from}));
}

void* HostMemoryResource::Impl::allocate_large(std::size_t bytes, std::size_t alignment) {
  auto range = MappedRange::try_create(driver_, range_options(std::max<std::size_t>(bytes, 1), alignment));
  if (!range) raise_as_standard(range.failure());
  if (auto appended = range->try_append(std::max<std::size_t>(bytes, 1)); !appended)
    raise_as_standard(appended.failure());
  const DeviceAddress address = range->address();
  const std::size_t mapped = range->mapped_bytes();
  const std::lock_guard lock(mutex_);
  large_.emplace(address, std::move(range).value());
  large_bytes_ += mapped;
  live_ += mapped;
  return address.as_pointer();
}

void HostMemoryResource::Impl::deallocate(void* pointer, std::size_t bytes) noexcept {
  try {
    const DeviceAddress address{reinterpret_cast<std::uintptr_t>(pointer)};
    decltype(large_)::node_type gone;  // after the lock
    const std::lock_guard lock(mutex_);
    if (auto found = large_.find(address); found != large_.end()) {
      if (found->second.size() != std::max<std::size_t>(bytes, 1)) raise(not_live(pointer, bytes));
      large_bytes_ -= found->second.mapped_bytes();
      live_ -= found->second.mapped_bytes();
      gone = large_.extract(found);
      return;
    }
    const std::size_t rounded = align_up(std::max<std::size_t>(bytes, 1), unit);
    const std::size_t offset = address.value - packed_.address().value;
    const auto found = packed_sizes_.find(offset);
    if (address < packed_.address() || found == packed_sizes_.end() || found->second != rounded)
      raise(not_live(pointer, bytes));
    static_cast<void>(holes_.give({offset, rounded}));
    packed_sizes_.erase(found);
    live_ -= rounded;
  } catch (...) {
    report_current_exception("HostMemoryResource::deallocate");
  }
}

std::size_t HostMemoryResource::Impl::trim() {
  const std::lock_guard growing(growing_);
  const std::size_t before = packed_.mapped_bytes();
  pool::Place last;
  {
    const std::lock_guard lock(mutex_);
    last = holes_.ending_at(packed_.size());
    if (last.bytes == 0) return 0;
    holes_.take_whole(last.offset);
  }
  const Result<void> truncated = packed_.try_truncate(last.offset);
  take_in(last.offset);
  if (!truncated) raise(truncated.failure());
  return before - packed_.mapped_bytes();
}

HostMemoryResource::HostMemoryResource(const Driver& driver, const HostMemoryOptions& options) {
  check(options);
  impl_ = std::make_unique<Impl>(driver, options);
}
HostMemoryResource::~HostMemoryResource() = default;

std::size_t HostMemoryResource::trim() {
  return impl_->trim();
}
std::size_t HostMemoryResource::live_bytes() const {
  return impl_->live_bytes();
}
std::size_t HostMemoryResource::reserved_bytes() const {
  return impl_->reserved_bytes();
}

void* HostMemoryResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  return impl_->allocate(bytes, alignment);
}
void HostMemoryResource::do_deallocate(void* pointer, std::size_t bytes, std::size_t /*alignment*/) {
  impl_->deallocate(pointer, bytes);
}
bool HostMemoryResource::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return this == &other;
}

}  // namespace cuvmm
