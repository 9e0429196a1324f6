// Bytes behind one pointer that grow without being copied: what a DeviceVector is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cuvmm/mapped_range.hpp"

namespace cuvmm {

// Memory of one location whose first size() bytes are the content; capacity() bytes have memory behind them. It lies in
// a MappedRange, whose options it takes: options.capacity is how many bytes of addresses are reserved at first,
// options.chunks the policy of growth. The pointer stays as long as those addresses suffice; so reserve many: they cost
// no memory, and 0 stands for as many as the device has memory.
//
// Where they do not suffice, and those behind them are taken, the buffer moves: it reserves at least twice as many
// elsewhere, and maps the same memory there (guide 4.16.5.3). No byte is copied, and address() is another one. The
// former addresses show the same memory and go on to work:
//
// - without a retire queue until release_former(), shrink_to_fit() or revoke() is called, or the buffer ends;
// - with one until the work is done that uses() knew of when the buffer moved: what is launched later has to use
//   address(), asked after the growth.
//
// Of work that uses both within one kernel, see aliases: cuvmm/gpu/proxy_fence.cuh.
//
// Each change happens as a whole or not at all, as those of MappedRange: after a failure size, capacity, content,
// rights and address are as before. Copies need a current context (CurrentContext) whose device may access the memory.
//
// Thread-safety: uses() and what it offers may be called by any thread at any time; all else by one thread at a time. A
// moved-from or closed buffer may be assigned to or destroyed, and asked for its numbers, which are 0, and its lists,
// which are empty; all else is refused (InvalidUse).
class DeviceBuffer {
 public:
  // Reserves the addresses; throws as MappedRange::create.
  [[nodiscard]] static DeviceBuffer create(const Driver& driver, const MappedRangeOptions& options = {});
  [[nodiscard]] static Result<DeviceBuffer> try_create(const Driver& driver, const MappedRangeOptions& options = {});

  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() = default;

  // --- Growing and shrinking.

  // Makes the capacity `bytes` at least; more as the policy says. Waits for the device in two cases alone: for
  // addresses that the retire queue is still to unmap, and where the queue has no room for former addresses. Throws
  // OutOfDeviceMemory or OutOfHostMemory, OutOfAddressSpace with the largest hole where no such range of addresses is
  // free, and others as the driver fails.
  void reserve(std::size_t bytes);
  [[nodiscard]] Result<void> try_reserve(std::size_t bytes);

  // Makes the content `bytes` long. What is added is whatever the memory holds; no memory is given back. Throws as
  // reserve().
  void resize(std::size_t bytes);
  [[nodiscard]] Result<void> try_resize(std::size_t bytes);

  // As resize(0).
  void clear() noexcept { size_ = 0; }

  // Releases former addresses, and gives the memory back that lies in whole chunks behind the content; waits for the
  // device, or retires behind its work. Throws TimedOut where neither can be done in time, and as the driver fails:
  // then content and address are as before, and some of the memory may be gone.
  void shrink_to_fit();
  [[nodiscard]] Result<void> try_shrink_to_fit();

  // --- Copies. Those without a stream are done when they return; those with one are told to uses(), so that
  // no_longer_used_on() is due before the stream is destroyed, and answer as used_on(): the number of the capture where
  // the stream is being captured. Ordinary memory that they read or write has to live until they are done; if it is not
  // page-locked, the driver may wait for the stream. They throw InvalidUse for bytes beyond the content, and as the
  // driver fails. Where an append fails in its copy the content is as before, and the capacity has grown.

  void append(std::span<const std::byte> source);
  std::optional<CaptureId> append(std::span<const std::byte> source, CUstream_st* stream);
  // The same of memory that the current device can read, which may be the buffer's own.
  void append_from_device(DeviceAddress source, std::size_t bytes);
  std::optional<CaptureId> append_from_device(DeviceAddress source, std::size_t bytes, CUstream_st* stream);

  void write(std::size_t offset, std::span<const std::byte> source);
  std::optional<CaptureId> write(std::size_t offset, std::span<const std::byte> source, CUstream_st* stream);
  void read(std::size_t offset, std::span<std::byte> destination) const;
  std::optional<CaptureId> read(std::size_t offset, std::span<std::byte> destination, CUstream_st* stream);

  // --- Rights: as of MappedRange, of all memory that there is and will be. Former addresses keep those that they had;
  // revoke() releases them first.

  void grant(std::span<const AccessGrant> grants) { range_.grant(grants); }
  void grant(const Location& location, AccessRights rights = AccessRights::read_write) {
    range_.grant(location, rights);
  }
  void revoke(const Location& location);
  [[nodiscard]] std::vector<DeviceOrdinal> grant_where_reachable(std::span<const DeviceOrdinal> devices,
                                                                 AccessRights rights = AccessRights::read_write) {
    return range_.grant_where_reachable(devices, rights);
  }
  [[nodiscard]] const std::vector<AccessGrant>& grants() const noexcept { return range_.grants(); }

  // --- Uses: see StreamUses. Told once, they hold for all addresses that the buffer has, had or will have.

  [[nodiscard]] StreamUses& uses();
  std::optional<CaptureId> used_on(CUstream_st* stream);
  void no_longer_used_on(CUstream_st* stream);

  // --- Former addresses that are not released; with a retire queue only those for which it had no room.

  [[nodiscard]] std::vector<DeviceAddress> former_addresses() const;
  // Waits for the work that uses() knows of, or has the queue wait, and unmaps them. Throws TimedOut where it is not
  // done in time, with nothing changed; and as the driver fails: then those that are left are told by
  // former_addresses(), the last of them may be unmapped in part, and it can be tried again.
  void release_former();
  [[nodiscard]] Result<void> try_release_former();

  // Gives everything back now; afterwards it is as moved from. As MappedRange::close().
  void close();

  // --- What it is. Sizes in bytes.

  [[nodiscard]] DeviceAddress address() const noexcept { return range_.address(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t address_capacity() const noexcept { return range_.capacity(); }  // before it has to move
  // Grows when the buffer moves and when memory is given back, not when it grows in place: whoever has cached its
  // address, or something about its pages, compares it.
  [[nodiscard]] std::uint64_t generation() const noexcept { return earlier_generations_ + range_.generation(); }
  [[nodiscard]] const MappedRange& range() const noexcept { return range_; }  // where the memory lies now
  [[nodiscard]] const Driver& driver() const { return range_.driver(); }

  // count * element_bytes. Throws InvalidUse where that is more than any machine has addresses.
  [[nodiscard]] static std::size_t bytes_of(std::size_t count, std::size_t element_bytes);

 private:
  DeviceBuffer(MappedRange range, const MappedRangeOptions& options);
  [[nodiscard]] StreamUses& uses_for(std::string_view function);
  Result<void> move_to_grow(std::size_t bytes);
  [[nodiscard]] Result<MappedRange> reserve_elsewhere(std::size_t needed) const;
  void give_up(MappedRange next) noexcept;
  void leave_for(MappedRange next) noexcept;
  template <class Copy>
  void copy_and_wait(Copy copy);
  [[nodiscard]] std::size_t mapped_without_a_gap() const;
  void require_content(std::string_view function, std::size_t offset, std::size_t bytes) const;
  DeviceAddress make_room_at_end(std::size_t bytes);
  DeviceAddress make_room_at_end(std::size_t bytes, DeviceAddress& source);

  std::shared_ptr<StreamUses> uses_;
  MappedRangeOptions options_;
  MappedRange range_;
  std::vector<MappedRange> former_;    // in the order in which they were left
  std::vector<MappedRange> given_up_;  // that could not be undone when a move failed
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  std::uint64_t earlier_generations_ = 0;
};

}  // namespace cuvmm
