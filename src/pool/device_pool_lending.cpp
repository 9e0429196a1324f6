// What pools for captures have of the pool that they were made from: it lends them what is free, and gets it back when
// they go.
#include "clean_up.hpp"
#include "pool/device_pool.hpp"

namespace cuvmm::pool {

// Adds what the lender has free. Answers how many bytes are still missing.
Result<std::size_t> DevicePool::borrow(std::size_t bytes, std::size_t largest, bool sparing,
                                       std::vector<SharedPhysicalMemory>& pieces) {
  const auto lender = lender_.lock();
  if (!lender) return bytes;
  std::vector<SharedPhysicalMemory> lent;
  Result<std::size_t> missing = lender->lend(bytes, largest, sparing, lent);
  account_for(lent, true);
  std::move(lent.begin(), lent.end(), std::back_inserter(pieces));
  return missing;
}

Result<std::size_t> DevicePool::lend(std::size_t bytes, std::size_t largest, bool sparing,
                                     std::vector<SharedPhysicalMemory>& lent) {
  const InFlight here(*this);
  poll();
  auto missing = recycle(bytes, largest, sparing, lent);
  if (!missing) {
    keep_loose(lent);
  } else {
    account_for(lent, false);
  }
  return missing;
}

// The budget is one for both.
void DevicePool::account_for(const std::vector<SharedPhysicalMemory>& pieces, bool comes) {
  const Lock lock(mutex_);
  for (const SharedPhysicalMemory& each : pieces)
    numbers_.reserved_bytes = comes ? numbers_.reserved_bytes + each.size() : numbers_.reserved_bytes - each.size();
  numbers_.peak_reserved_bytes = std::max(numbers_.peak_reserved_bytes, numbers_.reserved_bytes);
}

bool DevicePool::lender_progresses(Clock::time_point deadline) {
  const auto lender = lender_.lock();
  return lender && lender->wait_for_progress(deadline);
}

// What cannot be unmapped goes with this pool.
void DevicePool::give_back_to_lender() {
  const auto lender = lender_.lock();
  if (!lender) return;
  std::vector<Taken> taken;
  {
    const Lock lock(mutex_);
    for (const Candidate& each : candidates()) taken.push_back(take_out(each));
  }
  if (const Result<void> unmapped = unmap(taken); !unmapped) report_cleanup_failure(unmapped.failure());
  std::vector<SharedPhysicalMemory> pieces;
  pieces.reserve(taken.size());
  for (Taken& each : taken) pieces.push_back(std::move(each.memory));
  account_for(pieces, false);
  lender->account_for(pieces, true);
  lender->keep_loose(pieces);
}

}  // namespace cuvmm::pool
