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

  FallingAsleep(const Driver& driver, const Entries& entries) : driver_(driver), entries_(entries) {}
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
    long mappings = 0;  // of these ranges
  };
  using Places = std::vector<Place>;

  Found& found(Entry& entry, const SharedPhysicalMemory& share);
  void add(Entry& entry, const ChunkInfo& chunk);
  Result<void> refuse_what_is_shared() const;
  Result<void> make_backup_of(Entry& entry);
  Result<void> unmap_one(Entry& entry);
  void map_again(Entry& entry, Places places);

  const Driver& driver_;
  const Entries& entries_;
  std::vector<Found> found_;  // in the order of ranges and offsets
  // Groups wake singly: what two of them share is found for each.
  std::map<std::pair<std::string, const PhysicalMemory*>, std::size_t> index_;
  std::map<const PhysicalMemory*, long> times_found_;
  std::map<Entry*, Places> places_;
  SleepReport report_;
};

}  // namespace cuvmm::sleep
