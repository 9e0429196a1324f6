// One range of addresses, many chunks of physical memory behind it, one set of access rights.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuvmm/access_grant.hpp"
#include "cuvmm/chunk_policy.hpp"
#include "cuvmm/physical_source.hpp"
#include "cuvmm/retire_queue.hpp"
#include "cuvmm/stream_uses.hpp"

namespace cuvmm {

// What a range is to be. Checked as a whole when the range is made.
struct MappedRangeOptions {
  // Addresses to reserve, in bytes, which cost nothing but addresses. 0: as many as the device has memory (for memory
  // of the host: 64 GiB), and half of that, and so on, where there is no such room.
  std::size_t capacity = 0;

  MemoryProperties memory{};  // of the chunks that the range creates

  // What happens where compression or GPUDirect RDMA is asked for and cannot be had: the range does without, and
  // properties() tells; or it throws NotSupported.
  bool require_features = false;

  // Who may access all chunks, present and future. Empty: the device that the memory lies on, or the host for memory
  // of the host, reading and writing.
  std::vector<AccessGrant> grants{};

  ChunkPolicy chunks = ChunkPolicy::geometric();

  std::size_t alignment = 0;  // of the first address: 0, or a power of two

  std::shared_ptr<PhysicalSource> source{};       // none: one of the range's own, without limits
  std::shared_ptr<RetireQueue> retire_queue{};    // none: unmapping waits for the device
  std::chrono::milliseconds device_wait{60'000};  // how long a wait for the device may last
};

// One chunk of a range.
struct ChunkInfo {
  std::size_t offset = 0;  // bytes from the beginning of the range
  std::size_t bytes = 0;
  Location location{};
  bool quarantined = false;  // not part of the content: its undo failed, so it is kept out of use until the end
};

// Learns of changes of a range: caches of registrations (NCCL, RDMA) become stale with the pages behind them.
struct RangeObserver {
  // Before the bytes are unmapped or replaced; an exception stops the change, and nothing has changed.
  std::function<void(std::size_t offset, std::size_t bytes)> before_unmap{};
  // After bytes were mapped or replaced, granted and may be used; an exception goes to the clean-up failure handler.
  std::function<void(std::size_t offset, std::size_t bytes)> after_map{};
};

class MappedRange;

// Holds the pages of a range where they are, or an observer registered, for as long as it lives; may outlive the range.
class RangePin {
 public:
  RangePin() noexcept = default;

 private:
  friend class MappedRange;
  explicit RangePin(std::shared_ptr<const std::string> reason) noexcept : reason_(std::move(reason)) {}
  std::shared_ptr<const std::string> reason_;
};
class RangeObservation {
 public:
  RangeObservation() noexcept = default;

 private:
  friend class MappedRange;
  explicit RangeObservation(std::shared_ptr<const RangeObserver> observer) noexcept : observer_(std::move(observer)) {}
  std::shared_ptr<const RangeObserver> observer_;
};

// A stable address with memory behind it that can grow, shrink and be exchanged (guide 4.16.2 to 4.16.5). The workhorse
// of the library:
//
// - It grows in chunks, each one allocation, whose sizes a ChunkPolicy chooses. Any memory can be mapped: the range's
//   own, that of other devices, and memory that other ranges have mapped too (aliases).
// - Its grants belong to the range: every chunk that is mapped later gets them.
// - Each change happens as a whole or not at all: after an exception, or a Failure from a try_ function, size, content
//   and grants are as before. A chunk whose undo fails is quarantined: reported to the clean-up failure handler, kept
//   out of use, listed by quarantined().
// - Nothing is unmapped under running work, if the range is told what uses it: used_on(). Unmapping goes through the
//   retire queue, or waits for the device. The destructor does the same and never throws.
//
// Thread-safety: uses() and what it offers may be called by any thread at any time; all else by one thread at a time.
// No lock is held while the driver, an observer or a hook is called. A moved-from range may only be assigned to or
// destroyed.
class MappedRange {
 public:
  // Reserves the addresses; nothing is mapped yet. Throws InvalidUse for options that clash, OutOfAddressSpace, and
  // Error as the driver fails.
  [[nodiscard]] static MappedRange create(const Driver& driver, const MappedRangeOptions& options = {});
  [[nodiscard]] static Result<MappedRange> try_create(const Driver& driver, const MappedRangeOptions& options = {});

  MappedRange(MappedRange&&) noexcept;
  MappedRange& operator=(MappedRange&&) noexcept;
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;
  ~MappedRange();

  // --- Growing. Bytes count from the beginning of the range.

  // Makes the content `bytes` longer and returns the offset at which the new part begins. It first uses what the last
  // chunk has left, then maps new chunks. Throws OutOfDeviceMemory, OutOfAddressSpace, NotSupported and others.
  std::size_t append(std::size_t bytes);
  Result<std::size_t> try_append(std::size_t bytes);

  // The same with memory of another place, which begins a chunk of its own.
  std::size_t append(std::size_t bytes, const Location& location);
  Result<std::size_t> try_append(std::size_t bytes, const Location& location);

  // Maps existing memory behind the last chunk: of a source, imported, or a chunk of another range or of this one (an
  // alias).
  std::size_t append(const SharedPhysicalMemory& memory);
  Result<std::size_t> try_append(const SharedPhysicalMemory& memory);

  // Maps memory at an offset, a multiple of the granularity where nothing is mapped; created, or existing.
  void map(std::size_t offset, std::size_t bytes);
  void map(std::size_t offset, const SharedPhysicalMemory& memory);
  Result<void> try_map(std::size_t offset, std::size_t bytes);
  Result<void> try_map(std::size_t offset, const SharedPhysicalMemory& memory);

  // --- Exchanging and giving back. These wait for, or retire behind, the work that uses() knows of.

  // Puts other memory of the same size behind the addresses of the chunk at `offset`, once the device has done what
  // uses the range; returns the memory that lay there.
  SharedPhysicalMemory replace(std::size_t offset, const SharedPhysicalMemory& memory);
  Result<SharedPhysicalMemory> try_replace(std::size_t offset, const SharedPhysicalMemory& memory);

  // Unmaps whole chunks; holes in between are no fault. The memory goes back to its source when its last share is gone.
  // Throws InvalidUse where the range would cut a chunk or is pinned, TimedOut where the device is not done in time.
  void unmap(std::size_t offset, std::size_t bytes);
  Result<void> try_unmap(std::size_t offset, std::size_t bytes);

  // Makes the content `bytes` long at most and unmaps the chunks that lie wholly behind that.
  void truncate(std::size_t bytes);
  Result<void> try_truncate(std::size_t bytes);

  // Gives everything back now, waiting for the device, and afterwards is as moved from. What fails is thrown, and then
  // still owned. Retired chunks are waited for as well.
  void close();

  // --- Rights (cuMemSetAccess).

  // Sets rights of some locations to all chunks and to those to come; others keep theirs.
  void grant(std::span<const AccessGrant> grants);
  void grant(const Location& location, AccessRights rights = AccessRights::read_write);
  Result<void> try_grant(std::span<const AccessGrant> grants);
  // Takes all rights of the location away. Waits for the device as unmapping does.
  void revoke(const Location& location);
  Result<void> try_revoke(const Location& location);

  // Grants to those devices that can reach all memory of the range, and returns the others.
  [[nodiscard]] std::vector<DeviceOrdinal> grant_where_reachable(std::span<const DeviceOrdinal> devices,
                                                                 AccessRights rights = AccessRights::read_write);

  // --- Uses: see StreamUses.

  [[nodiscard]] StreamUses& uses() noexcept;
  void used_on(CUstream_st* stream) { static_cast<void>(uses().used_on(stream)); }
  void no_longer_used_on(CUstream_st* stream) { uses().no_longer_used_on(stream); }

  // --- Others that hold on to the range.

  // While a pin lives, unmapping, replacing and closing are refused (InvalidUse, with the reasons of the pins).
  [[nodiscard]] RangePin pin(std::string reason);
  [[nodiscard]] RangeObservation observe(RangeObserver observer);

  // --- What it is.

  [[nodiscard]] DeviceAddress address() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept;          // bytes of content, holes included
  [[nodiscard]] std::size_t mapped_bytes() const noexcept;  // bytes of all chunks
  [[nodiscard]] std::size_t capacity() const noexcept;      // bytes of addresses; more where more could be chained
  [[nodiscard]] std::size_t granularity() const noexcept;   // bytes
  [[nodiscard]] std::uint64_t generation() const noexcept;  // grows whenever pages behind an address change
  [[nodiscard]] const MemoryProperties& properties() const noexcept;  // of its own chunks: what was got, not asked
  [[nodiscard]] const std::vector<AccessGrant>& grants() const noexcept;
  [[nodiscard]] std::vector<ChunkInfo> chunks() const;  // by offset
  [[nodiscard]] std::vector<ChunkInfo> quarantined() const;
  // The memory of the chunk that the offset lies in; empty where nothing is mapped.
  [[nodiscard]] SharedPhysicalMemory memory_at(std::size_t offset) const;
  [[nodiscard]] const Driver& driver() const noexcept;
  [[nodiscard]] const std::shared_ptr<PhysicalSource>& source() const noexcept;

 private:
  friend struct RangeAppend;
  class Impl;
  friend Result<void> try_append_all(std::span<const struct RangeAppend> appends);
  explicit MappedRange(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

// One of several appends that belong together.
struct RangeAppend {
  MappedRange* range = nullptr;
  std::size_t bytes = 0;
};

// Appends to all ranges, or to none: keys and values of a cache, or the layers of a model. A failure tells in its
// arguments which append it was. Throws InvalidUse for a range that is named twice.
void append_all(std::span<const RangeAppend> appends);
[[nodiscard]] Result<void> try_append_all(std::span<const RangeAppend> appends);

}  // namespace cuvmm
