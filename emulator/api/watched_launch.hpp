// What a running kernel tells of its accesses, for the check of alias fences.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emulator/api/alias_tracker.hpp"
#include "emulator/api/machine.hpp"
#include "emulator/host_kernel.hpp"

namespace cuvmm::emulator::api {

// A launch that is running, from its first call to its last.
class WatchedLaunch {
 public:
  WatchedLaunch(AliasTracker& tracker, int device) : tracker_(tracker), launch_(tracker.begin(device)) {}
  ~WatchedLaunch() { tracker_.end(launch_); }
  WatchedLaunch(const WatchedLaunch&) = delete;
  WatchedLaunch& operator=(const WatchedLaunch&) = delete;
  WatchedLaunch(WatchedLaunch&&) = delete;
  WatchedLaunch& operator=(WatchedLaunch&&) = delete;

  [[nodiscard]] AliasTracker::Launch launch() const noexcept { return launch_; }

 private:
  AliasTracker& tracker_;
  const AliasTracker::Launch launch_;
};

// One call of its function. Thread-safe.
class WatchedViews final : public AliasChecker {
 public:
  WatchedViews(AliasTracker& tracker, AliasTracker::Launch launch, const std::vector<KernelView>& views,
               std::vector<const Access*> accesses)
      : tracker_(tracker), launch_(launch), views_(views), accesses_(std::move(accesses)) {}

  void wrote(std::size_t view, std::uint64_t offset, std::uint64_t bytes) override;
  void reads(std::size_t view, std::uint64_t offset, std::uint64_t bytes) override;
  void alias_fence() override;

  // When the function has returned: the first read that lacked a fence.
  [[nodiscard]] std::optional<std::string> conclude();

 private:
  // Under the lock.
  void tell_of_last_write();

  [[nodiscard]] AliasTracker::Access access(std::size_t view, std::uint64_t offset, std::uint64_t bytes) const;

  AliasTracker& tracker_;
  const AliasTracker::Launch launch_;
  const std::vector<KernelView>& views_;
  const std::vector<const Access*> accesses_;
  std::mutex mutex_;
  // Told of with what comes next: a fence right behind it leaves no moment in which it seems to lack one, in which
  // another launch, to which the old and the new value are alike, may look.
  std::optional<AliasTracker::Access> last_write_;
  std::optional<std::string> finding_;
};

}  // namespace cuvmm::emulator::api
