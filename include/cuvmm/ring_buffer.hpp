// A ring in device memory whose every window is contiguous.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuvmm/mapped_range.hpp"

namespace cuvmm {

struct RingBufferOptions {
  std::size_t bytes = 0;              // rounded up to the granularity; not 0
  MemoryProperties memory{};          // as for PhysicalSource::acquire
  std::vector<AccessGrant> grants{};  // these five as in MappedRangeOptions
  std::size_t alignment = 0;
  std::shared_ptr<PhysicalSource> source{};
  std::shared_ptr<RetireQueue> retire_queue{};
  std::chrono::milliseconds device_wait{60'000};
};

// The same memory twice in a row (guide 4.16.5.3): what runs past the end goes on at the beginning by itself, so that
// any size() bytes that follow one another in the ring do so at addresses, too. Producers and consumers take windows,
// fill or read them by whatever means (a kernel, a copy, the CPU where it was granted), and say when they are done:
//
//   if (const auto window = ring.write_window(bytes)) {  // where the next bytes go
//     produce<<<..., stream>>>(window->as_pointer<float>(), ...);
//     ring.commit(bytes);
//   }
//   if (const auto window = ring.read_window(bytes)) {   // where the oldest bytes are
//     consume<<<..., stream>>>(window->as_pointer<float>(), ...);
//     ring.release(bytes);
//   }
//
// Positions count bytes since the ring was made. They say what was given to streams, not what is done: the work of a
// consumer has to come after that of the producer, and that of the next producer after the consumer's, by being in one
// stream, by an event, or by a wait.
//
// Where work comes after other work in one of these ways, windows that reach past the end need nothing more. Kernels
// that run at the same time, and threads of one kernel, may see one memory through two addresses here, which the device
// does not keep in order by itself: whoever has written calls cuvmm::gpu::proxy_fence_alias()
// (cuvmm/gpu/proxy_fence.cuh) before it tells others, and whoever reads calls it once it was told.
//
// Thread-safety: one thread may produce (write_window, commit, write) while another consumes (read_window, release,
// read); positions and uses() may be asked by any thread; all else by one thread alone. A moved-from or closed ring may
// be assigned to or destroyed, and asked for its numbers, which are 0, and for windows, of which it has none; all else
// is refused (InvalidUse).
class RingBuffer {
 public:
  // Throws InvalidUse for no bytes and for options that clash, and what PhysicalSource::acquire and MappedRange throw.
  [[nodiscard]] static RingBuffer create(const Driver& driver, const RingBufferOptions& options);
  [[nodiscard]] static Result<RingBuffer> try_create(const Driver& driver, const RingBufferOptions& options);

  RingBuffer(RingBuffer&& other) noexcept;
  RingBuffer& operator=(RingBuffer&& other) noexcept;
  RingBuffer(const RingBuffer&) = delete;
  RingBuffer& operator=(const RingBuffer&) = delete;
  ~RingBuffer() = default;

  // --- Windows.

  // The address at which the next `bytes` bytes go; none where there is room for fewer.
  [[nodiscard]] std::optional<DeviceAddress> write_window(std::size_t bytes) const noexcept;
  // They were written, or will be by work that comes before any that reads them. Throws InvalidUse for more than there
  // is room for.
  void commit(std::size_t bytes);

  // The address of the oldest `bytes` bytes; none where there are fewer.
  [[nodiscard]] std::optional<DeviceAddress> read_window(std::size_t bytes) const noexcept;
  // They were read, or will be by work that comes before any that writes there again. Throws InvalidUse for more than
  // there are.
  void release(std::size_t bytes);

  // --- Copies between the ring and ordinary memory: as many bytes as there is room for, or as there are; the answer is
  // how many. Those without a stream are done when they return. Those with one are in its order, and tell uses() of it,
  // so that no_longer_used_on() is due before it is destroyed, and in a capture used_on() tells its number; the memory
  // of the host has to live until they are done. Need a current context whose device may access the ring. Throw as the
  // driver fails; the positions are then as before.
  std::size_t write(std::span<const std::byte> source);
  std::size_t write(std::span<const std::byte> source, CUstream_st* stream);
  std::size_t read(std::span<std::byte> destination);
  std::size_t read(std::span<std::byte> destination, CUstream_st* stream);

  // --- What it is.

  [[nodiscard]] DeviceAddress address() const noexcept { return range_.address(); }  // 2 * size() bytes from here
  [[nodiscard]] std::size_t size() const noexcept { return size_; }                  // bytes
  [[nodiscard]] std::uint64_t write_position() const noexcept;
  [[nodiscard]] std::uint64_t read_position() const noexcept;
  [[nodiscard]] std::size_t readable() const noexcept;  // bytes
  [[nodiscard]] std::size_t writable() const noexcept;  // bytes
  [[nodiscard]] const MappedRange& range() const noexcept { return range_; }
  [[nodiscard]] const Driver& driver() const { return range_.driver(); }

  // --- Rights and uses, as of MappedRange: for both addresses of each byte.

  void grant(const Location& location, AccessRights rights = AccessRights::read_write) {
    range_.grant(location, rights);
  }
  void revoke(const Location& location) { range_.revoke(location); }
  [[nodiscard]] StreamUses& uses() { return range_.uses(); }
  std::optional<CaptureId> used_on(CUstream_st* stream) { return range_.used_on(stream); }
  void no_longer_used_on(CUstream_st* stream) { range_.no_longer_used_on(stream); }

  // Gives everything back now; afterwards it is as moved from. As MappedRange::close().
  void close();

 private:
  struct Positions;
  RingBuffer(MappedRange range, std::size_t size);
  void require_ring(std::string_view function) const;
  [[nodiscard]] DeviceAddress at(std::uint64_t position) const noexcept;

  MappedRange range_;
  std::size_t size_;
  std::shared_ptr<Positions> positions_;
};

}  // namespace cuvmm
