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

// What lives under one tag, and has lived. Bytes.
struct TagStatistics {
  std::size_t live_bytes = 0;          // as they were asked for
  std::size_t live_allocations = 0;    // how many that are
  std::size_t rounded_bytes = 0;       // of physical memory that they take when all of them are awake
  std::size_t asleep_bytes = 0;        // of these, what is given back as long as it sleeps
  std::size_t peak_live_bytes = 0;     // the most of the first that there was
  std::size_t peak_rounded_bytes = 0;  // and of the third
  std::size_t budget = 0;              // the most that the third may be; 0: no limit

  friend bool operator==(const TagStatistics&, const TagStatistics&) noexcept = default;
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
  // an empty tag, 0 bytes, or a device that is not the pool's; OutOfDeviceMemory beyond the tag's budget; and as
  // MappedRange::append.
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

  // The most bytes of physical memory that may live under the tag, asleep or awake, at all devices together; 0: no
  // limit. Waking is never refused by it. Where more lives already, that stays and nothing is added. The tag need not
  // exist yet. Throws InvalidUse for an empty tag.
  void set_budget(const std::string& tag, std::size_t bytes);
  // Zeros for a tag that there never was. Peaks and budget outlive the tag's allocations.
  [[nodiscard]] TagStatistics statistics(const std::string& tag) const;

 private:
  class Impl;
  explicit TaggedAllocations(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm
