#include "cuvmm/ring_buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "cuvmm/copy.hpp"
#include "driver/call.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

// Each is changed by one thread, and read by the other one as well: on cache lines of their own.
struct RingBuffer::Positions {
  alignas(64) std::atomic<std::uint64_t> written = 0;
  alignas(64) std::atomic<std::uint64_t> read = 0;
};

namespace {

Failure too_many(std::string_view function, std::size_t bytes, std::size_t most, std::string rule,
                 std::string way_out) {
  return invalid_use(function, fmt::format("bytes = {} of {}", bytes, most), std::move(rule), std::move(way_out));
}

}  // namespace

RingBuffer::RingBuffer(MappedRange range, std::size_t size)
    : range_(std::move(range)), size_(size), positions_(std::make_shared<Positions>()) {}

RingBuffer::RingBuffer(RingBuffer&& other) noexcept
    : range_(std::move(other.range_)), size_(std::exchange(other.size_, 0)), positions_(std::move(other.positions_)) {}

RingBuffer& RingBuffer::operator=(RingBuffer&& other) noexcept {
  if (this == &other) return *this;
  range_ = std::move(other.range_);
  size_ = std::exchange(other.size_, 0);
  positions_ = std::move(other.positions_);
  return *this;
}

Result<RingBuffer> RingBuffer::try_create(const Driver& driver, const RingBufferOptions& options) try {
  if (options.bytes == 0 || options.bytes > SIZE_MAX / 8)
    return invalid_use("RingBuffer::create", fmt::format("bytes = {}", options.bytes),
                       "A ring has a size, and twice that in addresses", "Give its size in bytes");
  const std::size_t size = align_up(options.bytes, PhysicalMemory::granularity(driver, options.memory));
  MappedRangeOptions made;
  made.capacity = 2 * size;
  made.memory = options.memory;
  made.grants = options.grants;
  made.alignment = options.alignment;
  made.source = options.source;
  made.retire_queue = options.retire_queue;
  made.device_wait = options.device_wait;
  auto range = MappedRange::try_create(driver, made);
  if (!range) return range.failure();
  auto memory = range->source()->try_acquire(options.memory, size);
  if (!memory) return memory.failure();
  const std::array twice{*memory, *memory};
  if (auto mapped = range->try_append(twice); !mapped) return mapped.failure();
  return RingBuffer(std::move(range).value(), size);
} catch (const Error& error) {  // of the question for the granularity
  return error.failure();
}

RingBuffer RingBuffer::create(const Driver& driver, const RingBufferOptions& options) {
  return try_create(driver, options).value();
}

void RingBuffer::require_ring(std::string_view function) const {
  if (!positions_) raise(owns_nothing(function, "ring"));
}

void RingBuffer::close() {
  require_ring("RingBuffer::close");
  range_.close();
  positions_.reset();
  size_ = 0;
}

// The positions that the other side changes are read so that what it did before is seen.
std::uint64_t RingBuffer::write_position() const noexcept {
  return positions_ ? positions_->written.load(std::memory_order_acquire) : 0;
}

std::uint64_t RingBuffer::read_position() const noexcept {
  return positions_ ? positions_->read.load(std::memory_order_acquire) : 0;
}

// The one that is read first lags behind at most: neither answer is ever more than the size, or less than nothing.
std::size_t RingBuffer::readable() const noexcept {
  const std::uint64_t read = read_position();
  return static_cast<std::size_t>(std::min<std::uint64_t>(write_position() - read, size_));
}

std::size_t RingBuffer::writable() const noexcept {
  return size_ - readable();
}

DeviceAddress RingBuffer::at(std::uint64_t position) const noexcept {
  return address() + static_cast<std::size_t>(position % size_);
}

std::optional<DeviceAddress> RingBuffer::write_window(std::size_t bytes) const noexcept {
  if (!positions_ || bytes > writable()) return std::nullopt;
  return at(write_position());
}

std::optional<DeviceAddress> RingBuffer::read_window(std::size_t bytes) const noexcept {
  if (!positions_ || bytes > readable()) return std::nullopt;
  return at(read_position());
}

void RingBuffer::commit(std::size_t bytes) {
  require_ring("RingBuffer::commit");
  if (const std::size_t room = writable(); bytes > room)
    raise(too_many("RingBuffer::commit", bytes, room, "The bytes would lie over some that are not released",
                   "Commit what write_window() had room for"));
  positions_->written.fetch_add(bytes, std::memory_order_release);
}

void RingBuffer::release(std::size_t bytes) {
  require_ring("RingBuffer::release");
  if (const std::size_t there = readable(); bytes > there)
    raise(too_many("RingBuffer::release", bytes, there, "There are not that many bytes to be read",
                   "Release what read_window() had"));
  positions_->read.fetch_add(bytes, std::memory_order_release);
}

std::size_t RingBuffer::write(std::span<const std::byte> source) {
  require_ring("RingBuffer::write");
  const std::size_t bytes = std::min(source.size(), writable());
  copy_bytes_to_device(driver(), at(write_position()), source.first(bytes));
  commit(bytes);
  return bytes;
}

std::size_t RingBuffer::write(std::span<const std::byte> source, CUstream_st* stream) {
  require_ring("RingBuffer::write");
  const std::size_t bytes = std::min(source.size(), writable());
  if (bytes == 0) return 0;
  used_on(stream);
  call<EntryPoint::cuMemcpyHtoDAsync>(driver().interface(), at(write_position()).value, source.data(), bytes, stream);
  commit(bytes);
  return bytes;
}

std::size_t RingBuffer::read(std::span<std::byte> destination) {
  require_ring("RingBuffer::read");
  const std::size_t bytes = std::min(destination.size(), readable());
  copy_bytes_from_device(driver(), destination.first(bytes), at(read_position()));
  release(bytes);
  return bytes;
}

std::size_t RingBuffer::read(std::span<std::byte> destination, CUstream_st* stream) {
  require_ring("RingBuffer::read");
  const std::size_t bytes = std::min(destination.size(), readable());
  if (bytes == 0) return 0;
  used_on(stream);
  call<EntryPoint::cuMemcpyDtoHAsync>(driver().interface(), destination.data(), at(read_position()).value, bytes,
                                      stream);
  release(bytes);
  return bytes;
}

}  // namespace cuvmm
