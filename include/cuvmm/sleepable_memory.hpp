// Memory that is given back for a while, and comes back at the same addresses.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/mapped_range.hpp"

namespace cuvmm {

namespace sleep {
struct Entry;
}

// Where the content of a range is while the range sleeps.
enum class SleepingContent : unsigned char {
  discarded,  // nowhere: the range wakes with memory whose bytes mean nothing
  pinned,     // in pinned memory of the host: copied as fast as the link is
  pageable,   // in ordinary memory of the host, copied through a little pinned memory by several threads
  file,       // in a file without a name, likewise
};

// "discarded", "pinned", "pageable", "file".
[[nodiscard]] std::string_view to_string(SleepingContent content) noexcept;

// What becomes of one range when its group sleeps.
struct SleepPolicy {
  SleepingContent content = SleepingContent::pageable;
  // Whether the place of the content is kept when the range wakes: then the next sleep neither allocates, pins nor
  // touches new pages, which costs more than copying does; and the place goes on costing host memory or disk space.
  bool keep_backup = false;
  // Of the file: $TMPDIR, or /tmp, unless given. One that is missing or is none is InvalidUse when the range falls
  // asleep, one that this process may not write to NotPermitted.
  std::string directory{};
};

struct SleepableMemoryOptions {
  // Pinned host memory that pageable content and files are copied through, all threads together, while they are copied:
  // at most so much; a thread takes no more than 8 MiB.
  std::size_t staging_bytes = std::size_t{64} << 20;
  unsigned copy_threads = 4;  // that copy such content, the caller's among them; 1 to 64
  // How long sleeping waits for the work that uses the ranges, and for another thread that changes the same group. 0:
  // work that is not done is refused (TimedOut).
  std::chrono::milliseconds device_wait{60'000};
  // What content that was discarded is filled with on waking, to find programs that still use it.
  std::optional<std::uint8_t> poison{};
};

// How one call of sleep() is to be.
struct SleepOptions {
  // Puts also those ranges to sleep that are pinned, or whose memory others share. Whoever pinned one reaches unmapped
  // addresses until it wakes, and other pages afterwards; memory that others share is not given back by this, and on
  // waking the range has memory of its own.
  bool despite_pins = false;
  std::optional<std::chrono::milliseconds> device_wait{};  // as the memory's options say, unless given
};

// What sleep() did; bytes of ranges that slept already are not among them.
struct SleepReport {
  std::size_t ranges = 0;  // that fell asleep
  // Of physical memory that this process holds no more. Where another process has imported it, or it was imported from
  // there, it is free only when that one lets go as well, which the driver does not tell.
  std::size_t bytes_given_back = 0;
  std::size_t bytes_held_by_others = 0;  // of physical memory that others in this process share, each counted once
  std::size_t bytes_saved = 0;           // of content, to host memory or files
};

// A range that woke without its content.
struct LostContent {
  std::string name;
  DeviceAddress address{};
  std::size_t bytes = 0;  // of content
};

struct WakeReport {
  std::size_t ranges = 0;           // that woke
  std::size_t bytes_mapped = 0;     // of physical memory
  std::size_t bytes_restored = 0;   // of content
  std::vector<LostContent> lost{};  // those whose content was discarded
};

// What a group is at the moment.
enum class GroupState : unsigned char { awake, asleep, partly_asleep };

// What is held for all groups together, in bytes.
struct SleepHoldings {
  std::size_t awake_bytes = 0;     // physical memory of ranges that are awake
  std::size_t asleep_bytes = 0;    // physical memory that waking all others will take
  std::size_t pinned_bytes = 0;    // pinned host memory of backups
  std::size_t pageable_bytes = 0;  // ordinary host memory of backups
  std::size_t file_bytes = 0;      // disk space of backups
};

// A range in a group. Address, size, rights, observers and the order of its chunks stay while it sleeps. When this
// goes, so do the range and its backup, asleep or not.
//
// Thread-safety: as MappedRange, but for address(), asleep() and the names, which any thread may ask. A moved-from one
// may be assigned to or destroyed, and asked for these, which are 0, false and empty; all else is refused (InvalidUse).
class SleepableRange {
 public:
  // The range. Throws InvalidUse while it sleeps, falls asleep or wakes: so that a launch that would use it does not
  // happen. What is got is used before the group is put to sleep; growing and giving back
  // are as ever. A range that was closed or moved away is no member of its group any more.
  [[nodiscard]] MappedRange& range();
  [[nodiscard]] const MappedRange& range() const;

  [[nodiscard]] DeviceAddress address() const noexcept;
  [[nodiscard]] bool asleep() const noexcept;  // also while it falls asleep and wakes
  [[nodiscard]] const std::string& tag() const noexcept;
  [[nodiscard]] const std::string& name() const noexcept;

 private:
  friend class SleepableMemory;
  explicit SleepableRange(std::shared_ptr<sleep::Entry> entry) noexcept : entry_(std::move(entry)) {}
  std::shared_ptr<sleep::Entry> entry_;
};

// Ranges in named groups that give their memory back for a while (guide 4.16.2; cuMemUnmap, cuMemCreate, cuMemMap,
// cuMemSetAccess): an inference engine between two phases of training, or one model of several on a device.
//
//   auto memory = SleepableMemory::create(driver);
//   auto weights = memory.add("weights", std::move(range), {.content = SleepingContent::pinned});
//   auto cache = memory.add("cache", std::move(other), {.content = SleepingContent::discarded});
//   weights.range().used_on(stream);
//   memory.sleep({"weights", "cache"});   // waits for the work, copies, unmaps, gives the memory back
//   memory.wake("weights");               // same addresses and rights, other pages, the content is back
//
// - Sleeping waits for the work that the ranges were told of (used_on), copies what is to be kept, and only then
// unmaps.
//   It reports when all is given back: what a PhysicalSource would have kept for re-use is released as well.
// - Each range is either awake as a whole or asleep as a whole. Waking a group happens as a whole or not at all: where
//   memory is short, all of it still sleeps with its content kept, and waking may be tried again.
// - Sleeping what sleeps and waking what is awake do nothing. A failure while a group falls asleep leaves each of its
//   ranges awake or asleep; sleeping or waking again goes on from there.
// - A pinned range (published, registered) is refused, and one whose memory others share, before anything is changed;
//   so is one that is being changed: a reclaim hook puts other groups to sleep than that of the range that grows.
// - Where the driver does not tell that a copy is done, what the copy may still use stays: sleeping fails with the
// range
//   awake, waking with the range asleep, and either waits for that copy when it is tried again.
// - Pages change: generation() of the range grows, and observers are told, before_unmap when it falls asleep, after_map
//   for each chunk when it wakes (before the content is copied back).
// - An alias within a range, or between ranges of one group, is one again when they wake. Groups that share memory are
//   refused: each would wake with memory of its own.
//
// Thread-safe: a group that sleeps or wakes keeps others usable; two calls for one group come one after the other. No
// lock is held while the driver is called. Memory that was imported from elsewhere wakes as memory of its own. A
// moved-from one may be assigned to or destroyed, and has no tags and holds nothing; all else is refused (InvalidUse).
class SleepableMemory {
 public:
  // Throws InvalidUse for options out of range.
  [[nodiscard]] static SleepableMemory create(const Driver& driver, const SleepableMemoryOptions& options = {});

  SleepableMemory(SleepableMemory&&) noexcept;
  SleepableMemory& operator=(SleepableMemory&&) noexcept;
  SleepableMemory(const SleepableMemory&) = delete;
  SleepableMemory& operator=(const SleepableMemory&) = delete;
  ~SleepableMemory();  // ranges that sleep stay so for ever

  // Makes the range a member of a group, awake. The name is for reports. Throws InvalidUse for an empty tag, and
  // for a range of another driver; the range is then still the caller's.
  [[nodiscard]] SleepableRange add(std::string tag, MappedRange&& range, const SleepPolicy& policy = {},
                                   std::string name = {});

  // Puts groups to sleep. Throws InvalidUse for a tag that no living range has, for pinned ranges and shared memory
  // (see SleepOptions), and for ranges that a captured graph may still use; TimedOut where work is not done in time;
  // OutOfHostMemory or Error where there is no room for the content; DeviceLost where earlier work went wrong.
  // Where the driver fails to unmap, each range is awake or asleep, nothing is lost, and what ranges share they share
  // on; both calls may be tried again. A range that could be neither unmapped nor mapped again as a whole is asleep,
  // and keeps memory until it wakes.
  SleepReport sleep(std::span<const std::string> tags, const SleepOptions& options = {});
  SleepReport sleep(std::initializer_list<std::string> tags, const SleepOptions& options = {});
  SleepReport sleep(const std::string& tag, const SleepOptions& options = {});
  Result<SleepReport> try_sleep(std::span<const std::string> tags, const SleepOptions& options = {});

  // Wakes groups, all of them or none. Throws InvalidUse for a tag that no living range has; OutOfDeviceMemory or
  // OutOfHostMemory, and others as the driver fails.
  WakeReport wake(std::span<const std::string> tags);
  WakeReport wake(std::initializer_list<std::string> tags);
  WakeReport wake(const std::string& tag);
  Result<WakeReport> try_wake(std::span<const std::string> tags);

  [[nodiscard]] std::vector<std::string> tags() const;  // of living ranges, in alphabetical order
  // Throws InvalidUse for a tag that no living range has.
  [[nodiscard]] GroupState state(const std::string& tag) const;
  // Waits for calls that change groups. Not while other threads change ranges that are awake, nor from an observer.
  [[nodiscard]] SleepHoldings holdings() const;
  [[nodiscard]] const Driver& driver() const;

 private:
  class Impl;
  explicit SleepableMemory(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm
