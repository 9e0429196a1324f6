// A multicast object of a team: one address behind which lies memory of every rank.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

#include "cuvmm/multicast_object.hpp"
#include "cuvmm/stream_uses.hpp"
#include "cuvmm/team/team.hpp"

namespace cuvmm::team {

struct MulticastTeamOptions {
  // Of the memory that is to be bound, whose granularity counts, too. Its location is taken to be the rank's device.
  MemoryProperties memory{};
  // Which granularity of the object sizes and offsets are multiples of: see MulticastObject::granularity.
  Granularity granularity = Granularity::minimum;
  // How often all ranks try to bind while some are answered that the system is not ready (802), which passes, and how
  // long they wait in between. Where ranks differ, the fewest tries count.
  int bind_attempts = 5;
  std::chrono::milliseconds bind_pause{20};
  // How long any wait for the device may last before the object is unmapped.
  std::chrono::milliseconds device_wait{60'000};
};

// A multicast object over one device of each rank (guide 4.16.4): a multimem instruction at its address reaches the
// memory that every rank has bound there (cuvmm/gpu/multimem.cuh). Several buffers share one object at different
// offsets, since the switch has room for few objects.
//
// BINDING AND MAPPING CAN BLOCK INSIDE THE DRIVER, where nobody can cancel them. So all ranks vote before each step
// that can (docs/teams.md), and these calls are made on a thread of their own. A rank whose call has not returned after
// half of the time that the deadline leaves says so: the verdict, TimedOut, names it, the thread, and what that waits
// for. What such a thread uses lives as long as it does, and is given back when the driver returns.
//
// create(), bind() and close() are collective, and do what they do on all ranks or on none. They throw what a rank was
// refused, the same on all ranks, after which the team goes on: NotSupported where a rank has no multicast or has it
// turned off by the environment (docs/environment.md; before any driver call), OutOfMulticastSlots, InvalidUse, Error
// with code 401 for trouble of the fabric manager. And TimedOut, which names the ranks that are missing; PeerGone,
// which names the one that has ended.
//
// The destructor waits for this rank's work (used_on) and for no other rank; it unmaps the object and unbinds this
// rank's memory, so that other ranks' multimem faults from then on. close() does it when nobody uses the object any
// more. A destructor whose wait fails leaves everything as it is, for ever, and reports it.
//
// One thread at a time uses an object. A moved-from or closed one may be assigned to or destroyed, and asked for its
// team and its sizes, which are none and 0; all else is refused (InvalidUse).
class MulticastTeam {
 public:
  // An object of `bytes` bytes at least, rounded up to the granularity of all ranks, with every rank's device added.
  // Nothing is bound yet. Throws InvalidUse where ranks want different sizes, or two have one device.
  [[nodiscard]] static MulticastTeam create(std::shared_ptr<Team> team, std::size_t bytes,
                                            const MulticastTeamOptions& options, const Deadline& deadline) {
    return try_create(std::move(team), bytes, options, deadline).value();
  }
  [[nodiscard]] static Result<MulticastTeam> try_create(std::shared_ptr<Team> team, std::size_t bytes,
                                                        const MulticastTeamOptions& options, const Deadline& deadline);

  MulticastTeam(MulticastTeam&&) noexcept;
  MulticastTeam& operator=(MulticastTeam&&) noexcept;
  MulticastTeam(const MulticastTeam&) = delete;
  MulticastTeam& operator=(const MulticastTeam&) = delete;
  ~MulticastTeam();

  // Each rank puts `bytes` bytes of memory of its device, from its `memory_offset` on, behind the object's bytes from
  // `offset` on: offset and bytes are the same on all ranks, and multiples of granularity(). The first time the object
  // is then mapped; later buffers are bound while it is, and while work uses those that are there. The memory is kept
  // until close().
  //
  // After a failure the first time nothing is bound. Later, those that could bind have their memory bound still, since
  // nothing is unbound from a mapped object: call it again with the same memory, or close().
  void bind(std::size_t offset, const SharedPhysicalMemory& memory, std::size_t memory_offset, std::size_t bytes,
            const Deadline& deadline) {
    try_bind(offset, memory, memory_offset, bytes, deadline).value();
  }
  Result<void> try_bind(std::size_t offset, const SharedPhysicalMemory& memory, std::size_t memory_offset,
                        std::size_t bytes, const Deadline& deadline);

  // Gives everything back, on all ranks: each waits for the work that it was told of, and once all have, unmaps the
  // object, unbinds exactly what it has bound, and releases the object. Returns when all have done so: now the memory
  // may be freed. Where a rank fails to, all are told, and this is called again by all. Afterwards the object is as
  // moved from.
  void close(const Deadline& deadline) { try_close(deadline).value(); }
  Result<void> try_close(const Deadline& deadline);

  [[nodiscard]] const std::shared_ptr<Team>& team() const noexcept;  // none of a moved-from one
  [[nodiscard]] std::size_t size() const noexcept;                   // bytes of the object
  [[nodiscard]] std::size_t granularity() const noexcept;            // bytes; of offsets and sizes
  [[nodiscard]] bool is_mapped() const noexcept;                     // something was bound, on all ranks
  // Where this rank's device reaches a byte of the object, by multimem alone. Throws InvalidUse before something was
  // bound, and for an offset beyond the size.
  [[nodiscard]] DeviceAddress address(std::size_t offset = 0) const;

  // Work of this stream may use the object: as MappedRange::used_on. uses() takes events and captures, too.
  [[nodiscard]] StreamUses& uses();
  std::optional<CaptureId> used_on(CUstream_st* stream);
  void no_longer_used_on(CUstream_st* stream);
  // What these know of may use the object, too: of a range whose memory is bound, say. They have to live until it is
  // closed or destroyed.
  void heed(StreamUses& uses);

 private:
  class Impl;
  explicit MulticastTeam(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm::team
