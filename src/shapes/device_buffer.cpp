#include "cuvmm/device_buffer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "access_refusal.hpp"
#include "cuvmm/copy.hpp"
#include "driver/call.hpp"
#include "range/mapped_range_impl.hpp"
#include "refusal.hpp"
#include "report_exception.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

namespace {

constexpr std::size_t most_bytes = SIZE_MAX / 2;

Failure too_large(std::string_view function, std::string arguments) {
  return invalid_use(function, std::move(arguments), "No machine has that many addresses", "Ask for fewer");
}

}  // namespace

DeviceBuffer::DeviceBuffer(MappedRange range, const MappedRangeOptions& options)
    : uses_(range.impl_->uses_), options_(options), range_(std::move(range)) {
  options_.source = range_.source();  // one for all addresses that it will have
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : uses_(std::move(other.uses_)),
      options_(std::move(other.options_)),
      range_(std::move(other.range_)),
      former_(std::move(other.former_)),
      given_up_(std::move(other.given_up_)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)),
      earlier_generations_(std::exchange(other.earlier_generations_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  uses_ = std::move(other.uses_);
  options_ = std::move(other.options_);
  range_ = std::move(other.range_);
  former_ = std::move(other.former_);
  given_up_ = std::move(other.given_up_);
  size_ = std::exchange(other.size_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  earlier_generations_ = std::exchange(other.earlier_generations_, 0);
  return *this;
}

Result<DeviceBuffer> DeviceBuffer::try_create(const Driver& driver, const MappedRangeOptions& options) {
  auto range = MappedRange::try_create(driver, options);
  if (!range) return range.failure();
  return DeviceBuffer(std::move(range).value(), options);
}

DeviceBuffer DeviceBuffer::create(const Driver& driver, const MappedRangeOptions& options) {
  return try_create(driver, options).value();
}

std::size_t DeviceBuffer::bytes_of(std::size_t count, std::size_t element_bytes) {
  if (element_bytes != 0 && count > most_bytes / element_bytes)
    raise(too_large("DeviceVector", fmt::format("{} elements of {} bytes", count, element_bytes)));
  return count * element_bytes;
}

// Growing.

Result<void> DeviceBuffer::try_reserve(std::size_t bytes) {
  if (!uses_) return owns_nothing("DeviceBuffer::reserve", "buffer");
  if (bytes <= capacity_) return {};
  if (bytes > most_bytes) return too_large("DeviceBuffer::reserve", fmt::format("bytes = {}", bytes));
  // What a shrink could not unmap must not lie in the way.
  if (range_.mapped_bytes() != capacity_)
    if (auto cleared = range_.try_truncate(capacity_); !cleared) return cleared;
  if (auto grown = range_.try_append(bytes - range_.size()); !grown) {
    if (grown.failure().kind != ErrorKind::out_of_address_space) return grown.failure();
    if (auto moved = move_to_grow(bytes); !moved) return moved;
  }
  capacity_ = range_.mapped_bytes();
  return {};
}

// All that can fail happens to the new range, which is given up with all that it mapped where something does.
Result<void> DeviceBuffer::move_to_grow(std::size_t bytes) {
  std::vector<SharedPhysicalMemory> memories;
  for (std::size_t offset = 0; offset < capacity_; offset += memories.back().size())
    memories.push_back(range_.memory_at(offset));
  former_.reserve(former_.size() + 1);
  given_up_.reserve(given_up_.size() + 1);
  auto created = reserve_elsewhere(align_up(bytes, range_.granularity()));
  if (!created) return created.failure();
  MappedRange next = std::move(created).value();
  try {
    auto grown = next.try_append(memories);
    if (grown) grown = next.try_append(bytes - next.size());
    if (!grown) {
      give_up(std::move(next));
      return grown.failure();
    }
  } catch (...) {
    give_up(std::move(next));
    throw;
  }
  leave_for(std::move(next));
  return {};
}

// What cannot be undone now is kept, and tried again with the former addresses.
void DeviceBuffer::give_up(MappedRange next) noexcept {
  try {
    next.close();
    return;
  } catch (...) {
    report_current_exception("DeviceBuffer::reserve");
  }
  given_up_.push_back(std::move(next));  // for which there is room
}

// As generously as the machine allows.
Result<MappedRange> DeviceBuffer::reserve_elsewhere(std::size_t needed) const {
  MappedRangeOptions options = options_;
  options.memory = range_.properties();
  options.grants = range_.grants();
  if (options.grants.empty()) options.grants = {{options.memory.location, AccessRights::none}};  // no grant, as now
  options.capacity = std::max(needed, std::min(range_.capacity(), most_bytes / 2) * 2);
  for (;;) {
    auto created = MappedRange::try_create(range_.driver(), options);
    if (created || created.failure().kind != ErrorKind::out_of_address_space || options.capacity <= needed)
      return created;
    const std::size_t hole = created.failure().largest_hole_bytes.value_or(options.capacity / 2);
    const std::size_t smaller = std::min(options.capacity / 2, hole) / range_.granularity() * range_.granularity();
    options.capacity = std::max(needed, smaller);
  }
}

void DeviceBuffer::leave_for(MappedRange next) noexcept {
  earlier_generations_ = generation() + 1 - next.generation();
  next.impl_->uses_ = uses_;
  std::swap(range_, next);
  former_.push_back(std::move(next));  // for which there is room
  if (!options_.retire_queue) return;
  try {
    static_cast<void>(try_release_former());
  } catch (const std::bad_alloc&) {
    // They stay, as where the queue has no room, and are tried again.
  }
}

void DeviceBuffer::reserve(std::size_t bytes) {
  try_reserve(bytes).value();
}

Result<void> DeviceBuffer::try_resize(std::size_t bytes) {
  if (auto reserved = try_reserve(bytes); !reserved) return reserved;
  size_ = bytes;
  return {};
}

void DeviceBuffer::resize(std::size_t bytes) {
  try_resize(bytes).value();
}

// Giving back.

std::size_t DeviceBuffer::mapped_without_a_gap() const {
  std::size_t end = 0;
  while (const SharedPhysicalMemory memory = range_.memory_at(end)) end += memory.size();
  return end;
}

Result<void> DeviceBuffer::try_shrink_to_fit() {
  if (auto released = try_release_former(); !released) return released;
  Result<void> shrunk = range_.try_truncate(size_);
  capacity_ = shrunk ? range_.mapped_bytes() : mapped_without_a_gap();
  return shrunk;
}

void DeviceBuffer::shrink_to_fit() {
  try_shrink_to_fit().value();
}

std::vector<DeviceAddress> DeviceBuffer::former_addresses() const {
  std::vector<DeviceAddress> addresses;
  addresses.reserve(former_.size());
  for (const MappedRange& each : former_) addresses.push_back(each.address());
  return addresses;
}

void DeviceBuffer::release_former() {
  for (; !given_up_.empty(); given_up_.pop_back()) given_up_.back().close();
  for (; !former_.empty(); former_.pop_back()) {
    if (options_.retire_queue) {
      former_.back().truncate(0);  // the queue keeps what it needs of the range
    } else {
      former_.back().close();
    }
  }
}

Result<void> DeviceBuffer::try_release_former() try {
  release_former();
  return {};
} catch (const Error& error) {
  return error.failure();
}

void DeviceBuffer::close() {
  if (!uses_) raise(owns_nothing("DeviceBuffer::close", "buffer"));
  release_former();
  range_.close();
  uses_.reset();
  size_ = capacity_ = 0;
  earlier_generations_ = 0;
}

// Uses.

StreamUses& DeviceBuffer::uses_for(std::string_view function) {
  return owned(uses_, function, "buffer");
}

StreamUses& DeviceBuffer::uses() {
  return uses_for("DeviceBuffer::uses");
}

std::optional<CaptureId> DeviceBuffer::used_on(CUstream_st* stream) {
  return uses_for("DeviceBuffer::used_on").used_on(stream);
}

void DeviceBuffer::no_longer_used_on(CUstream_st* stream) {
  uses_for("DeviceBuffer::no_longer_used_on").no_longer_used_on(stream);
}

void DeviceBuffer::revoke(const Location& location) {
  release_former();
  range_.revoke(location);
}

// Copies.

void DeviceBuffer::require_content(std::string_view function, std::size_t offset, std::size_t bytes) const {
  if (offset <= size_ && bytes <= size_ - offset) return;
  raise(invalid_use(function, fmt::format("buffer of {} bytes, offset = {}, bytes = {}", size_, offset, bytes),
                    "The bytes must lie inside the content", "Copy fewer bytes, or resize() first"));
}

// Where the next bytes go; the content is as before until they are there.
DeviceAddress DeviceBuffer::make_room_at_end(std::size_t bytes) {
  if (bytes > most_bytes - size_)
    raise(too_large("DeviceBuffer::append", fmt::format("{} bytes behind {}", bytes, size_)));
  reserve(size_ + bytes);
  return address() + size_;
}

// A source in the content is where that is now.
DeviceAddress DeviceBuffer::make_room_at_end(std::size_t bytes, DeviceAddress& source) {
  const DeviceAddress before = address();
  const DeviceAddress destination = make_room_at_end(bytes);
  if (before <= source && source < before + size_) source = address() + (source.value - before.value);
  return destination;
}

// A copy in the default stream, which is waited for. Where that fails it may still be at work.
template <class Copy>
void DeviceBuffer::copy_and_wait(Copy copy) {
  try {
    copy();
  } catch (const Error&) {
    try {
      used_on(nullptr);
    } catch (const Error&) {  // a driver that answers nothing any more does no work either
    }
    throw;
  }
}

void DeviceBuffer::append(std::span<const std::byte> source) {
  const DeviceAddress destination = make_room_at_end(source.size());
  copy_and_wait([&] { copy_bytes_to_device(driver(), destination, source); });
  size_ += source.size();
}

std::optional<CaptureId> DeviceBuffer::append(std::span<const std::byte> source, CUstream_st* stream) {
  const DeviceAddress destination = make_room_at_end(source.size());
  const std::optional<CaptureId> capture = used_on(stream);
  if (!source.empty())
    call_that_touches<EntryPoint::cuMemcpyHtoDAsync>(driver(), destination, source.size(), AccessRights::read_write,
                                                     destination.value, source.data(), source.size(), stream);
  size_ += source.size();
  return capture;
}

void DeviceBuffer::append_from_device(DeviceAddress source, std::size_t bytes) {
  const DeviceAddress destination = make_room_at_end(bytes, source);
  if (bytes != 0)
    copy_and_wait([&] {
      call_that_touches<EntryPoint::cuMemcpyDtoD>(driver(), destination, bytes, AccessRights::read_write,
                                                  destination.value, source.value, bytes);
      call<EntryPoint::cuStreamSynchronize>(driver().interface(), nullptr);  // such copies return before they are done
    });
  size_ += bytes;
}

std::optional<CaptureId> DeviceBuffer::append_from_device(DeviceAddress source, std::size_t bytes,
                                                          CUstream_st* stream) {
  const DeviceAddress destination = make_room_at_end(bytes, source);
  const std::optional<CaptureId> capture = used_on(stream);
  if (bytes != 0)
    call_that_touches<EntryPoint::cuMemcpyDtoDAsync>(driver(), destination, bytes, AccessRights::read_write,
                                                     destination.value, source.value, bytes, stream);
  size_ += bytes;
  return capture;
}

void DeviceBuffer::write(std::size_t offset, std::span<const std::byte> source) {
  require_content("DeviceBuffer::write", offset, source.size());
  copy_and_wait([&] { copy_bytes_to_device(driver(), address() + offset, source); });
}

std::optional<CaptureId> DeviceBuffer::write(std::size_t offset, std::span<const std::byte> source,
                                             CUstream_st* stream) {
  require_content("DeviceBuffer::write", offset, source.size());
  const std::optional<CaptureId> capture = used_on(stream);
  if (!source.empty())
    call_that_touches<EntryPoint::cuMemcpyHtoDAsync>(driver(), address() + offset, source.size(),
                                                     AccessRights::read_write, (address() + offset).value,
                                                     source.data(), source.size(), stream);
  return capture;
}

void DeviceBuffer::read(std::size_t offset, std::span<std::byte> destination) const {
  require_content("DeviceBuffer::read", offset, destination.size());
  copy_bytes_from_device(driver(), destination, address() + offset);
}

std::optional<CaptureId> DeviceBuffer::read(std::size_t offset, std::span<std::byte> destination, CUstream_st* stream) {
  require_content("DeviceBuffer::read", offset, destination.size());
  const std::optional<CaptureId> capture = used_on(stream);
  if (!destination.empty())
    call_that_touches<EntryPoint::cuMemcpyDtoHAsync>(driver(), address() + offset, destination.size(),
                                                     AccessRights::read, destination.data(), (address() + offset).value,
                                                     destination.size(), stream);
  return capture;
}

}  // namespace cuvmm
