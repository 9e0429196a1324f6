// Memory of the same size on every rank, all of which every rank can reach.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

#include "cuvmm/granularity.hpp"
#include "cuvmm/mapped_range.hpp"
#include "cuvmm/team/multicast_team.hpp"
#include "cuvmm/team/team.hpp"

namespace cuvmm::team {

// Whether the parts of all ranks lie behind one multicast address, too (MulticastTeam).
enum class Multicast : unsigned char {
  never,
  if_possible,  // where a rank cannot, all go without: SymmetricMemory::why_no_multicast() tells why
  required,     // where a rank cannot, nothing is created, and nothing grows
};

struct SymmetricMemoryOptions {
  // How far each rank's part can grow, in bytes: the same on all ranks. 0: as far as it is made.
  std::size_t capacity = 0;
  // How the memory may be exported. None: as descriptors, and where the team is on several nodes as fabric handles,
  // too.
  HandleTypes handle_types{};
  bool compression = false;  // ask for compressible memory
  // Where this rank's part is acquired. None: a source of its own, without limits.
  std::shared_ptr<PhysicalSource> source{};
  // How long any wait for the device may last when memory is unmapped; see MappedRangeOptions.
  std::chrono::milliseconds device_wait{60'000};
  Multicast multicast = Multicast::never;  // the same on all ranks
};

// Each rank of a team gives memory of its device, as large as the others', and has the memory of all mapped (guide
// 4.16.3, 4.16.4). In each rank's addresses the parts lie side by side, at the same distance everywhere, so that device
// code finds any byte of any rank by
//
//   address(0) + rank * stride() + offset
//
// and an offset means the same on all ranks; the addresses themselves differ. With multicast one more address stands
// for the byte at an offset of all parts at once:
//
//   multicast_address(offset)
//
// What multicast comes to never takes the other addresses away, unless it is required.
//
// What create(), grow() and close() do they do on all ranks or on none: they are collective, and go in steps that all
// vote on (docs/teams.md). They throw what a rank was refused, the same on all ranks; TimedOut, which names the ranks
// that are missing; PeerGone, which names the one that has ended; and then nothing has changed.
//
// Nothing that is mapped becomes invalid because another rank ends, however it does: its memory stays until the last
// rank that has mapped it unmaps it. The destructor unmaps what this rank has mapped, after the work that it was told
// of (used_on), and waits for no other rank; to see that all is given back everywhere, close(). With multicast, other
// ranks' multimem faults once a rank has destroyed its object, so close() it.
//
// One thread at a time uses an object.
class SymmetricMemory {
 public:
  // `bytes` bytes of each rank, which is what each rank passes. Their content is undefined.
  [[nodiscard]] static SymmetricMemory create(std::shared_ptr<Team> team, std::size_t bytes,
                                              const SymmetricMemoryOptions& options, const Deadline& deadline) {
    return try_create(std::move(team), bytes, options, deadline).value();
  }
  [[nodiscard]] static Result<SymmetricMemory> try_create(std::shared_ptr<Team> team, std::size_t bytes,
                                                          const SymmetricMemoryOptions& options,
                                                          const Deadline& deadline);

  SymmetricMemory(SymmetricMemory&&) noexcept;
  SymmetricMemory& operator=(SymmetricMemory&&) noexcept;
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;
  ~SymmetricMemory();

  // Makes each rank's part `bytes` bytes longer, and returns the offset at which the new ones begin: the size() before.
  // Addresses stay, the multicast one, too. Throws InvalidUse beyond the capacity, too. Where multicast is required and
  // a rank could not bind the new bytes, this can be called again with the same number, and nothing else grows.
  std::size_t grow(std::size_t bytes, const Deadline& deadline) { return try_grow(bytes, deadline).value(); }
  Result<std::size_t> try_grow(std::size_t bytes, const Deadline& deadline);

  // Gives everything back, on all ranks: once all have come, which means that nobody's work uses the memory any more,
  // each waits for its device, unmaps all parts and releases its own. Returns when all have done so. Where a rank fails
  // to, all are told, and this is called again by all. Afterwards the object is as moved from.
  void close(const Deadline& deadline) { try_close(deadline).value(); }
  Result<void> try_close(const Deadline& deadline);

  [[nodiscard]] const std::shared_ptr<Team>& team() const noexcept;  // none of a moved-from one
  [[nodiscard]] std::size_t size() const noexcept;                   // bytes of each part
  [[nodiscard]] std::size_t capacity() const noexcept;               // that each can grow to
  [[nodiscard]] std::size_t stride() const noexcept;  // bytes between a rank's address and the next one's
  // Where this rank's device reaches a byte of a rank's part. Throws InvalidUse for a rank or an offset that there is
  // not; the size itself is an offset, too, for ends of loops.
  [[nodiscard]] DeviceAddress address(int rank, std::size_t offset = 0) const;
  // The same as an offset in range(), for copies (copy.hpp).
  [[nodiscard]] std::size_t offset_in_range(int rank, std::size_t offset = 0) const;
  [[nodiscard]] const MappedRange& range() const;

  // How many bytes of each part, from the first on, lie behind the multicast address: all, or, where that was not
  // possible, those before the growth that failed, or none.
  [[nodiscard]] std::size_t multicast_size() const noexcept;
  // Where this rank's device reaches the byte at an offset of all parts at once, by multimem alone; nothing beyond
  // multicast_size(), and where that is 0. Throws InvalidUse for an offset beyond size().
  [[nodiscard]] std::optional<DeviceAddress> multicast_address(std::size_t offset = 0) const;
  // Why multicast_size() is not size(), where multicast was asked for: the same on all ranks.
  [[nodiscard]] const std::optional<Failure>& why_no_multicast() const;

  // Work of this stream may use the memory; see MappedRange.
  std::optional<CaptureId> used_on(CUstream_st* stream);
  void no_longer_used_on(CUstream_st* stream);

 private:
  class Impl;
  explicit SymmetricMemory(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm::team
