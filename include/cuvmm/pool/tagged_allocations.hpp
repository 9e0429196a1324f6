// Allocations in groups that sleep and wake.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuvmm/pool/pool.hpp"
#include "cuvmm/sleepable_memory.hpp"

namespace cuvmm {

// One of them.
struct TaggedAllocation {
  DeviceAddress address{};  // where it begins
  std::size_t bytes = 0;    // as it was asked for
  std::string tag{};

  friend bool operator==(const TaggedAllocation&, const TaggedAllocation&) = default;
};

// Allocations of which each carries a tag, beside a pool: weights, say, or a cache. A tag sleeps as a whole: its memory
// goes back to the machine, and comes back at the same addresses when it wakes. The memory is of the pool's source, and
// what is free in the pool is given up for it where there is none. Each allocation has physical memory of its own, in
// whole granules, and is a member of its group as long as it lives: memory that was given back under one tag and came
// back under another belongs to the other.
//
//   auto weights = TaggedAllocations::create(pool);
//   const DeviceAddress layer = weights.allocate("weights", bytes, stream, {.content = SleepingContent::pinned});
//   weights.sleep("weights");
//   weights.wake("weights");
//
// Thread-safe. No lock is held while the driver is called. The pool may go first. A moved-from one may be assigned to
// or destroyed; all else is refused (InvalidUse).
class TaggedAllocations {
 public:
  // Throws InvalidUse for options out of range.
  [[nodiscard]] static TaggedAllocations create(const Pool& pool, const SleepableMemoryOptions& options = {});

  TaggedAllocations(TaggedAllocations&&) noexcept;
  TaggedAllocations& operator=(TaggedAllocations&&) noexcept;
  TaggedAllocations(const TaggedAllocations&) = delete;
  TaggedAllocations& operator=(const TaggedAllocations&) = delete;
  ~TaggedAllocations();  // gives back all that lives, when its work is done

  // `bytes` of memory of the pool's first device, or the named one, for the work of the stream. Throws InvalidUse for
  // an empty tag, 0 bytes, or a device that is not the pool's; and as MappedRange::append.
  [[nodiscard]] DeviceAddress allocate(const std::string& tag, std::size_t bytes, CUstream_st* stream,
                                       const SleepPolicy& policy = {});
  [[nodiscard]] DeviceAddress allocate(const std::string& tag, std::size_t bytes, CUstream_st* stream,
                                       const SleepPolicy& policy, DeviceOrdinal device);
  // Work of another stream uses it as well. Throws InvalidUse for an address at which none begins, or while it sleeps.
  void used_on(DeviceAddress address, CUstream_st* stream);
  // Gives it back when the work of its streams is done, asleep or awake. Throws InvalidUse for an address at which none
  // begins, or that was freed.
  void free(DeviceAddress address);

  // See SleepableMemory.
  SleepReport sleep(const std::string& tag, const SleepOptions& options = {});
  WakeReport wake(const std::string& tag);
  [[nodiscard]] GroupState state(const std::string& tag) const;
  [[nodiscard]] std::vector<std::string> tags() const;

  // The one that the address lies in; nothing where there is none.
  [[nodiscard]] std::optional<TaggedAllocation> describe(DeviceAddress address) const;
  // Bytes of the tag as they were asked for; 0 of one that there is not.
  [[nodiscard]] std::size_t live_bytes(const std::string& tag) const;

 private:
  class Impl;
  explicit TaggedAllocations(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm
