#include "driver/counting_driver.hpp"

namespace cuvmm::driver {

CallCounts CountingDriver::snapshot() const noexcept {
  CallCounts counts;
  for (const EntryPointInfo& entry : entry_points)
    counts[entry.entry_point] = counts_[static_cast<std::size_t>(entry.entry_point)].load(std::memory_order_relaxed);
  return counts;
}

void CountingDriver::reset() noexcept {
  for (std::atomic<std::uint64_t>& count : counts_) count.store(0, std::memory_order_relaxed);
}

}  // namespace cuvmm::driver
