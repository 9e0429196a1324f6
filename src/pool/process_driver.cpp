#include "pool/process_driver.hpp"

#include <atomic>

#include "pool/home_process.hpp"

namespace cuvmm::pool {
namespace {

constexpr long never = -1;
std::atomic<long> opened_at_fork_count{never};

const Driver& opened() {
  const Driver& driver = *new Driver(Driver::open());
  opened_at_fork_count = static_cast<long>(driver::fork_count());
  return driver;
}

}  // namespace

const Driver& process_driver() {
  static const Driver& driver = opened();
  return driver;
}

bool in_forked_child() noexcept {
  const long at = opened_at_fork_count.load(std::memory_order_relaxed);
  return at != never && at != static_cast<long>(driver::fork_count());
}

void refuse_in_forked_child(std::string_view call) {
  if (in_forked_child()) raise(not_after_fork(call));
}

}  // namespace cuvmm::pool
