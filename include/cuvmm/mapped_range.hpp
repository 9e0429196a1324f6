// One range of addresses, many chunks of physical memory behind it, one set of access rights.
//
//   const auto driver = cuvmm::Driver::open();
//   const auto device = driver.device(cuvmm::DeviceOrdinal{0});
//   const cuvmm::CurrentContext context(device);  // copies and streams need one
//   auto range = cuvmm::MappedRange::create(driver, {.memory = {.location = device.location()}});
//   const std::size_t offset = range.append(data.size());  // data: a std::span<const std::byte>
//   cuvmm::copy_bytes_to_device(range, offset, data);
//   range.used_on(stream);  // a CUstream whose work uses the range; unmapping waits for it
//   launch(stream, (range.address() + offset).as_pointer<float>());
//   range.append(more);      // new memory behind the old; the address stays
//   range.truncate(offset);  // memory goes back, when that work is done
//   range.close();           // all of it; or leave it to the destructor
//
// Each function throws a cuvmm::Error that says what was wrong and what to do; its try_ form returns that as a value.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/access_grant.hpp"
#include "cuvmm/chunk_policy.hpp"
#include "cuvmm/physical_source.hpp"
#include "cuvmm/retire_queue.hpp"
#include "cuvmm/stream_uses.hpp"

namespace cuvmm {

// What a range is to be. Checked as a whole when the range is made.
struct MappedRangeOptions {
  // How far the range can grow for sure: addresses to reserve, in bytes, rounded up to the granularity. It is no limit:
  // further growth takes the addresses behind, as long as these are free. Addresses cost no memory, so be generous.
  // 0: as many as the device has memory (for memory of the host: 64 GiB), and half of that, and so on, where there is
  // no such room.
  std::size_t capacity = 0;

  MemoryProperties memory{};  // of the chunks that the range creates

  // What happens where compression, GPUDirect RDMA, or fabric handles beside other handle types, are asked for and
  // cannot be had: the range does without, and properties() tells (of fabric handles source()->fabric_refusal() tells
  // why); or it throws NotSupported.
  bool require_features = false;

  // Who may access all chunks, present and future: {{one}, {other, AccessRights::read}} lets one read and write, and
  // the other read. Empty: where the memory lies may read and write, that is the device, or the host for memory of the
  // host. Other devices, and devices that use memory of the host, have to be named; a device that cannot reach
  // `memory.location` is NotSupported.
  std::vector<AccessGrant> grants{};

  ChunkPolicy chunks = ChunkPolicy::geometric();  // how large the chunks are that append(bytes) creates

  std::size_t alignment = 0;  // of the first address: 0, or a power of two

  // Where memory is acquired. None: a source of the range's own, without limits.
  std::shared_ptr<PhysicalSource> source{};
  // With a queue, unmapping returns at once and the queue unmaps when the device is done; without, unmapping waits.
  std::shared_ptr<RetireQueue> retire_queue{};
  // How long any wait for the device may last before it is given up with TimedOut, the destructor's included.
  std::chrono::milliseconds device_wait{60'000};
};

// Existing memory, and where a range is to map it.
struct MemoryAt {
  std::size_t offset = 0;  // bytes from the beginning of the range
  SharedPhysicalMemory memory{};
};

// One chunk of a range.
struct ChunkInfo {
  std::size_t offset = 0;  // bytes from the beginning of the range
  std::size_t bytes = 0;
  Location location{};
  bool quarantined = false;  // not part of the content: could not be unmapped, so it is kept out of use
};

// Learns of changes of a range: caches of registrations (NCCL, RDMA) become stale with the pages behind them. Called by
// the thread that changes the range; may ask the range, not change it.
struct RangeObserver {
  // Before the bytes are unmapped or replaced; an exception stops the change, and nothing has changed: those that were
  // told already hear after_map. Also before the range is destroyed, which nothing stops: an exception then goes to the
  // clean-up failure handler. A pin that is taken here stops the change, too; work that is told of here is waited for.
  std::function<void(std::size_t offset, std::size_t bytes)> before_unmap{};
  // After bytes were mapped or replaced, granted and may be used, or stayed although before_unmap was told of them; an
  // exception goes to the clean-up failure handler.
  std::function<void(std::size_t offset, std::size_t bytes)> after_map{};
  // After bytes that before_unmap was told of are the range's no more: unmapped, given to its retire queue, or gone
  // with it. An exception goes to the clean-up failure handler.
  std::function<void(std::size_t offset, std::size_t bytes)> after_unmap{};
};

class DeviceBuffer;
class MappedRange;
struct RangeAppend;
namespace sleep {
struct Entry;
}

// As long as it or a copy lives, no page of the range is taken away from under its address. May outlive the range.
class RangePin {
 public:
  RangePin() noexcept = default;

 private:
  friend class MappedRange;
  explicit RangePin(std::shared_ptr<const std::string> reason) noexcept : reason_(std::move(reason)) {}
  std::shared_ptr<const std::string> reason_;
};

// As long as it or a copy lives, the observer is told of changes. May outlive the range.
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
//   auto range = MappedRange::create(driver, {.capacity = 64_GiB});
//   const std::size_t offset = range.append(bytes);  // now the device may use range.address() + offset,
//   copy_to_device(range, offset, data);             // and data can be copied there (copy.hpp)
//   range.used_on(stream);                           // work of this stream uses the range
//   range.truncate(offset);                          // gives memory back when that work is done
//
// The first size() bytes are the content, counted as they were asked for. The memory behind them comes in chunks of
// whole granules, so that the last chunk may reach further: what it has left serves the next append(). Content with no
// chunk behind it is a hole, which nobody may touch.
//
// - It grows in chunks, each one allocation, whose sizes a ChunkPolicy chooses. Any memory can be mapped: the range's
//   own, that of other devices, and memory that other ranges have mapped too (aliases).
// - Its grants belong to the range: every chunk that is mapped later gets them. Memory that a granted location cannot
//   reach is refused.
// - Each change happens as a whole or not at all: after an exception, or a Failure from a try_ function, size, content,
//   capacity and grants are as before. If undoing a change fails, the chunk is quarantined: reported to the clean-up
//   failure handler, kept out of use, listed by quarantined().
// - Nothing is unmapped under running work, if the range is told what uses it: used_on(). Unmapping goes through the
//   retire queue, or waits for the device. The destructor does the same and never throws.
//
// The try_ functions return as a Failure what their namesakes throw; what an observer throws, and std::bad_alloc, they
// throw as well.
//
// Thread-safety: uses() and what it offers may be called by any thread at any time; all else by one thread at a time.
// No lock is held while the driver, an observer or a hook is called; those may ask the range that calls them, and
// change others, but changing that range itself is refused. A moved-from or closed range may be
// assigned to or destroyed, and asked for its numbers, which are 0, and its lists, which are empty; all else is refused
// (InvalidUse).
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

  // --- Growing. Offsets count bytes from address(). The device is waited for in two cases alone: where the addresses
  // are still to be unmapped by the retire queue, up to device_wait, and before a lack of memory is reported, as the
  // source's options say.

  // Makes the content `bytes` longer and returns the offset at which the new part begins: the size() before, or behind
  // the last chunk where a hole lies between. It first uses what the last chunk has left, then creates chunks as the
  // policy says, or just as large as needed where there is no memory for more. After memory of another location it is
  // as append(bytes, properties().location). Throws OutOfDeviceMemory or OutOfHostMemory, OutOfAddressSpace where the
  // addresses behind the range are taken, NotSupported, and others as the driver fails.
  std::size_t append(std::size_t bytes);
  Result<std::size_t> try_append(std::size_t bytes);

  // The same with memory of that location. If the last chunk lies elsewhere, the new part begins behind that chunk, and
  // what it had left becomes part of the content.
  std::size_t append(std::size_t bytes, const Location& location);
  Result<std::size_t> try_append(std::size_t bytes, const Location& location);

  // Maps existing memory, all of it, behind the last chunk and makes it part of the content: memory of a source,
  // imported, or a chunk of another range or of this one (an alias). Returns the offset at which it begins; what the
  // last chunk had left becomes part of the content. Throws InvalidUse where the memory would lie across the border of
  // two reservations (see capacity()), which no mapping can: the failure names the border, at which map() takes it.
  std::size_t append(const SharedPhysicalMemory& memory);
  Result<std::size_t> try_append(const SharedPhysicalMemory& memory);

  // The same of several memories, one behind the other: all of them or none. One call of the driver grants them all.
  std::size_t append(std::span<const SharedPhysicalMemory> memories);
  Result<std::size_t> try_append(std::span<const SharedPhysicalMemory> memories);

  // Maps memory at an offset, a multiple of the granularity, where nothing is mapped: one new chunk of exactly `bytes`
  // bytes, whatever the policy, or existing memory. Where new memory would lie across the border of two reservations it
  // is one chunk in each; existing memory is refused there, as by append(). The content then reaches to its end at
  // least; what lies between is a hole. Throws InvalidUse where something is mapped, and as append().
  void map(std::size_t offset, std::size_t bytes);
  void map(std::size_t offset, const SharedPhysicalMemory& memory);
  Result<void> try_map(std::size_t offset, std::size_t bytes);
  Result<void> try_map(std::size_t offset, const SharedPhysicalMemory& memory);

  // The same of several memories, in the order of their offsets, with holes between them or not: all of them or none.
  // Those side by side are granted in one call. What was mapped before one fails is unmapped at once, whatever work the
  // range was told of: nobody can have used it.
  void map(std::span<const MemoryAt> memories);
  Result<void> try_map(std::span<const MemoryAt> memories);

  // --- Exchanging and giving back. These wait for, or retire behind, the work that uses() knows of.

  // Puts other memory of the same size behind the addresses of the chunk that begins at `offset`, and returns the
  // memory that lay there. No bytes are copied. Always waits for the device, also with a retire queue. Throws
  // InvalidUse if no chunk begins there, the sizes differ or the range is pinned, TimedOut where the device is not done
  // in time. Should neither memory be mapped in the end, which takes two failures of the driver, a hole is left and the
  // failure says so.
  SharedPhysicalMemory replace(std::size_t offset, const SharedPhysicalMemory& memory);
  Result<SharedPhysicalMemory> try_replace(std::size_t offset, const SharedPhysicalMemory& memory);

  // Unmaps whole chunks; holes in between are no fault. size() stays: a hole is left, which map() can fill. The memory
  // goes back to its source when its last share is gone. Throws InvalidUse where the bytes begin or end inside a chunk,
  // or the range is pinned; TimedOut where the device is not done, or the queue has no room, in time.
  // Should the driver refuse to unmap some of the chunks, those stay and the others are gone: chunks() tells.
  void unmap(std::size_t offset, std::size_t bytes);
  Result<void> try_unmap(std::size_t offset, std::size_t bytes);

  // Makes the content `bytes` long at most and unmaps the chunks that lie wholly behind that. Throws as unmap(), where
  // there are such chunks: a shorter content alone takes no page away, so pins and the device do not matter to it.
  void truncate(std::size_t bytes);
  Result<void> try_truncate(std::size_t bytes);

  // Gives everything back now, addresses included, and afterwards is as moved from. Waits for the device and for chunks
  // of the range in the retire queue. For those who want to see failures, which the destructor can only report: what
  // fails is thrown, and the range keeps what could not be given back.
  void close();

  // --- Rights (cuMemSetAccess).

  // Sets rights of some locations to all chunks and to those to come; others keep theirs. Does not wait for the device,
  // so take rights away with revoke(). Throws InvalidUse for a device that there is not, and for a location that cannot
  // have them; NotSupported for a device that cannot reach the memory that the range has, or, while it has none, its
  // own location. To take rights from a location that has none does nothing.
  void grant(std::span<const AccessGrant> grants);
  void grant(std::initializer_list<AccessGrant> grants) {  // grant({{one, AccessRights::read}, {other, rights}})
    grant(std::span(grants.begin(), grants.size()));
  }
  void grant(const Location& location, AccessRights rights = AccessRights::read_write);
  Result<void> try_grant(std::span<const AccessGrant> grants);
  Result<void> try_grant(std::initializer_list<AccessGrant> grants) {
    return try_grant(std::span(grants.begin(), grants.size()));
  }
  // Takes all rights of the location away. Waits for the device as unmapping does. Does nothing where the location has
  // none, whether it could have any or not; a device that there is not is InvalidUse.
  void revoke(const Location& location);
  Result<void> try_revoke(const Location& location);

  // Grants to those devices that can reach all memory that the range has now, and returns the others. Where it has
  // none, its own location counts.
  [[nodiscard]] std::vector<DeviceOrdinal> grant_where_reachable(std::span<const DeviceOrdinal> devices,
                                                                 AccessRights rights = AccessRights::read_write);
  [[nodiscard]] std::vector<DeviceOrdinal> grant_where_reachable(std::initializer_list<DeviceOrdinal> devices,
                                                                 AccessRights rights = AccessRights::read_write) {
    return grant_where_reachable(std::span(devices.begin(), devices.size()), rights);
  }

  // --- Uses: see StreamUses for events and captures.

  [[nodiscard]] StreamUses& uses();
  // Work of this stream may use the range, from now on and until no_longer_used_on(), which is due before the stream is
  // destroyed. May be told before the work is given to the stream or after, but before the range is changed. Of a
  // stream that is being captured it answers the number of the capture, which uses().graph_gone() has to be told when
  // the graph is gone.
  std::optional<CaptureId> used_on(CUstream_st* stream);
  void no_longer_used_on(CUstream_st* stream);

  // --- Others that hold on to the range.

  // While a pin lives, unmapping, replacing, closing, and truncating where chunks would be unmapped, are refused
  // (InvalidUse, with the reasons of the pins); growing and changing rights are not. The destructor heeds no pin.
  [[nodiscard]] RangePin pin(std::string reason);
  // The reasons of the pins that live.
  [[nodiscard]] std::vector<std::string> pins() const;
  // Tells the observer of changes from now on. Throws InvalidUse for one that has neither function.
  [[nodiscard]] RangeObservation observe(RangeObserver observer);

  // --- What it is.

  [[nodiscard]] DeviceAddress address() const noexcept;     // stays as it is, whatever changes
  [[nodiscard]] std::size_t size() const noexcept;          // bytes of content, holes included
  [[nodiscard]] std::size_t mapped_bytes() const noexcept;  // bytes of all chunks
  // Bytes of addresses that are reserved, which is no limit. Growing beyond that reserves more, if the addresses behind
  // happen to be free; each chunk then lies in one of the reservations.
  [[nodiscard]] std::size_t capacity() const noexcept;
  [[nodiscard]] std::size_t granularity() const noexcept;  // bytes
  // Grows whenever something is unmapped or replaced, not when the range grows: who has cached something of its pages
  // compares it.
  [[nodiscard]] std::uint64_t generation() const noexcept;
  // Of the chunks that it creates: as they were asked for until there is one, then as they were got.
  [[nodiscard]] const MemoryProperties& properties() const;
  [[nodiscard]] const std::vector<AccessGrant>& grants() const noexcept;
  [[nodiscard]] std::vector<ChunkInfo> chunks() const;  // by offset
  [[nodiscard]] std::vector<ChunkInfo> quarantined() const;
  // The whole memory of the chunk that the offset lies in; empty where nothing is mapped. To append it elsewhere makes
  // an alias; holding it keeps it from going back to its source.
  [[nodiscard]] SharedPhysicalMemory memory_at(std::size_t offset) const;
  [[nodiscard]] const Driver& driver() const;
  [[nodiscard]] const std::shared_ptr<PhysicalSource>& source() const;

 private:
  class Impl;
  friend class DeviceBuffer;  // a range that it leaves and the one that follows have the same uses
  friend Result<void> try_append_all(std::span<const RangeAppend> appends);
  friend struct sleep::Entry;
  // As try_unmap, whoever has pinned the range; waits for the device also with a retire queue.
  Result<void> unmap_despite_pins(std::string_view call, std::size_t offset, std::size_t bytes);
  // The same of what was mapped in the meantime, and what nobody but the caller and observers can have used.
  Result<void> unmap_unused(std::string_view call, std::size_t offset, std::size_t bytes);
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
inline void append_all(std::initializer_list<RangeAppend> appends) {  // append_all({{&keys, bytes}, {&values, bytes}})
  append_all(std::span(appends.begin(), appends.size()));
}
[[nodiscard]] inline Result<void> try_append_all(std::initializer_list<RangeAppend> appends) {
  return try_append_all(std::span(appends.begin(), appends.size()));
}

}  // namespace cuvmm
