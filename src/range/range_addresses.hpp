// The addresses of a range, shared with those of its chunks that wait to be unmapped.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuvmm/address_reservation.hpp"
#include "cuvmm/mapped_range.hpp"
#include "driver/abi.hpp"
#include "range/chunk_map.hpp"

namespace cuvmm::range {

// Whether a call may have done its work although it failed: a driver reports failures of earlier work by any call.
[[nodiscard]] bool may_have_been_done(const Failure& failure) noexcept;

// Adjacent reservations, as one. Freed when the range and all that is still to be unmapped are gone.
class RangeAddresses {
 public:
  // `wanted` bytes, or the half and so on, but no less than `least`; both multiples of `granularity`.
  [[nodiscard]] static Result<std::shared_ptr<RangeAddresses>> reserve(const Driver& driver, std::size_t wanted,
                                                                       std::size_t least, std::size_t granularity,
                                                                       std::size_t alignment);
  explicit RangeAddresses(AddressReservation first);

  // Chains another reservation to the end, of `wanted` bytes or no less than `least`.
  [[nodiscard]] Result<void> extend(std::size_t wanted, std::size_t least);
  // Frees reservations that were chained on at or behind that offset and hold nothing. One that the driver does not
  // free stays, and is reported.
  void give_back_behind(std::size_t offset) noexcept;

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }  // for the thread that extends
  // Where the reservation ends in which the offset lies: a chunk must not lie across.
  [[nodiscard]] std::size_t reservation_end(std::size_t offset) const noexcept;

  // The driver's calls for chunks of the range. Runs of neighbours in one reservation take one call. What is mapped by
  // a call that fails is unmapped, or in quarantine.
  [[nodiscard]] Result<void> map(std::size_t offset, const SharedPhysicalMemory& memory);
  [[nodiscard]] Result<void> set_access(const Extent& run, std::span<const abi::CUmemAccessDesc> grants) const;
  struct Run {
    Extent extent;
    ChunkMap::const_iterator next;  // the first chunk behind it
  };
  [[nodiscard]] Run run_from(ChunkMap::const_iterator first, ChunkMap::const_iterator end) const noexcept;

  // Unmaps the chunks; those that the driver refuses to unmap are left in `chunks`, and the first refusal is returned.
  Result<void> unmap(ChunkMap& chunks) const;
  // The same for some of them; `bytes` falls by what was unmapped.
  Result<void> unmap(ChunkMap& chunks, ChunkMap::const_iterator first, ChunkMap::const_iterator last,
                     std::size_t& bytes) const;

  // What waits to be unmapped, so that its addresses are not yet free.
  void begin_retiring(std::span<const Extent> extents);  // all, or none if it throws
  void end_retiring(std::span<const Extent> extents) noexcept;
  [[nodiscard]] bool is_retiring(const Extent& extent) const;
  // Where the first addresses at or behind the offset begin that are retiring or in quarantine; SIZE_MAX: none are.
  [[nodiscard]] std::size_t out_of_use_from(std::size_t offset) const;

  // Chunks that could not be unmapped: their addresses and memory are out of use.
  void quarantine(ChunkMap&& chunks) noexcept;
  [[nodiscard]] std::vector<ChunkInfo> quarantined() const;
  // Tries to unmap those in the extent once more; the refusal, if one is left.
  [[nodiscard]] Result<void> clear_quarantine(const Extent& extent);

  // For memory that something may still reach: it is released with its last share, never re-used.
  static void never_recycle(const SharedPhysicalMemory& memory) noexcept;

  // Frees the addresses now, the last reservation first; those before one that cannot be freed stay.
  void free();

 private:
  void unmap_if_mapped(std::size_t offset, const SharedPhysicalMemory& memory);
  [[nodiscard]] bool is_mapped(std::size_t offset) const;

  // Retired chunks are unmapped by any thread, also while the range's own extends: what those need does not change, or
  // is read under the lock.
  const Driver driver_;
  const DeviceAddress address_;
  const std::size_t first_size_;
  std::atomic<bool> chained_ = false;             // there is more than the first reservation
  std::vector<AddressReservation> reservations_;  // changed under the lock
  std::size_t size_;
  std::atomic<std::size_t> out_of_use_ = 0;      // entries of the two maps; a range with none needs no lock
  mutable std::mutex mutex_;                     // guards what follows
  std::map<std::size_t, std::size_t> retiring_;  // offset -> bytes
  ChunkMap quarantined_;
};

// Chunks that are unmapped when this is destroyed. What cannot be unmapped is quarantined, and reported.
class RetiredChunks {
 public:
  // Takes the chunks, of which there is one at least, unless it throws.
  RetiredChunks(std::shared_ptr<RangeAddresses> addresses, ChunkMap& chunks);
  RetiredChunks(RetiredChunks&&) noexcept = default;
  RetiredChunks& operator=(RetiredChunks&&) = delete;
  RetiredChunks(const RetiredChunks&) = delete;
  RetiredChunks& operator=(const RetiredChunks&) = delete;
  ~RetiredChunks();

  // Takes the chunks back: they stay mapped.
  [[nodiscard]] ChunkMap take_back() noexcept;

 private:
  std::shared_ptr<RangeAddresses> addresses_;  // none: moved from
  ChunkMap chunks_;
  std::vector<Extent> extents_;  // of the chunks, neighbours as one; what lies between is not retired
};

}  // namespace cuvmm::range
