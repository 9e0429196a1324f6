// How awake ranges give their memory back.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sleep/content_copy.hpp"
#include "sleep/entry.hpp"

namespace cuvmm::sleep {

// One attempt to put ranges to sleep, all of which are `changing`. Each step may be what fails; nothing has changed
// before unmap(), and afterwards each range is awake or asleep.
class FallingAsleep {
 public:
  using Clock = std::chrono::steady_clock;

  // `asleep` are the others of their groups, which may wait for memory that these have mapped: an attempt that failed
  // half-way left them so.
  FallingAsleep(const Driver& driver, const Entries& entries, Entries asleep);
  FallingAsleep(const FallingAsleep&) = delete;
  FallingAsleep& operator=(const FallingAsleep&) = delete;
  FallingAsleep(FallingAsleep&&) = delete;
  FallingAsleep& operator=(FallingAsleep&&) = delete;
  ~FallingAsleep();

  // What there is; refuses what others hold on to unless told not to.
  Result<void> plan(bool despite_pins);
  Result<void> wait_for_work(Clock::time_point deadline) const;
  // Copies what is to be kept.
  Result<void> save(const CopyOptions& options);
  Result<void> unmap();
  // Gives back what is not held by others any more, to the driver. Also where others do not sleep; at the latest when
  // this goes.
  SleepReport give_back();

 private:
  // An allocation, as long as it is there.
  struct Found {
    std::shared_ptr<SleepingMemory> memory;
    SharedPhysicalMemory share;
    Entry* entry = nullptr;  // through which it is copied
    std::size_t offset = 0;
    std::size_t least_content = 0;  // that those want who wait for it
    long own_shares = 0;            // of these ranges, and of those that wait for it
  };
  using Places = std::vector<Place>;

  Found& found(Entry& entry, const SharedPhysicalMemory& share);
  void add(Entry& entry, const ChunkInfo& chunk);
  void add_what_stayed_mapped();
  Result<void> refuse_what_is_shared() const;
  Result<void> make_backup_of(Entry& entry);
  Result<void> unmap_what_stayed_mapped();
  void settle(Entries::const_iterator first_awake);
  void map_again(Entry& entry, Places places);

  const Driver& driver_;
  const Entries& entries_;
  const Entries asleep_;
  // What those that sleep wait for and what is still there, by group and memory.
  std::map<std::pair<std::string, const PhysicalMemory*>, std::shared_ptr<SleepingMemory>> known_;
  std::vector<Found> found_;  // in the order of ranges and offsets
  // Groups wake singly: what two of them share is found for each.
  std::map<std::pair<std::string, const PhysicalMemory*>, std::size_t> index_;
  std::map<const PhysicalMemory*, long> times_found_;
  std::map<Entry*, Places> places_;
  SleepReport report_;
};

}  // namespace cuvmm::sleep
