#include "driver/fault_injecting_driver.hpp"

#include <fmt/format.h>

namespace cuvmm::driver {

namespace {

// The calling thread's last call, if it was made to fail.
struct LastInjected {
  const FaultInjectingDriver* driver = nullptr;
  Fault fault;
};
thread_local LastInjected last_injected;

bool concerns(const Fault& fault, EntryPoint entry) {
  return !fault.entry_point || *fault.entry_point == entry;
}

}  // namespace

FaultInjectingDriver::FaultInjectingDriver(std::shared_ptr<Interface> next, const std::vector<Fault>& faults)
    : Decorator(std::move(next)) {
  for (const Fault& fault : faults) inject(fault);
}

void FaultInjectingDriver::inject(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  armed_.push_back({fault, 0});
  any_armed_.store(true, std::memory_order_relaxed);
}

void FaultInjectingDriver::clear() {
  const std::lock_guard lock(mutex_);
  armed_.clear();
  any_armed_.store(false, std::memory_order_relaxed);
}

std::string FaultInjectingDriver::explanation() const {
  if (last_injected.driver != this) return next().explanation();
  return fmt::format("This failure was injected by the fault {}", to_string(last_injected.fault));
}

std::optional<Fault> FaultInjectingDriver::count_call(EntryPoint entry) {
  const std::lock_guard lock(mutex_);
  std::optional<Fault> due;
  for (std::size_t index = 0; index < armed_.size();) {
    Armed& armed = armed_[index++];
    if (!concerns(armed.fault, entry)) continue;
    ++armed.seen;
    const bool reached = armed.fault.lasting ? armed.seen >= armed.fault.call : armed.seen == armed.fault.call;
    if (!reached) continue;
    if (!due) due = armed.fault;
    if (!armed.fault.lasting) armed_.erase(armed_.begin() + static_cast<std::ptrdiff_t>(--index));
  }
  any_armed_.store(!armed_.empty(), std::memory_order_relaxed);
  return due;
}

std::optional<Fault> FaultInjectingDriver::due(EntryPoint entry) {
  last_injected.driver = nullptr;
  if (!any_armed_.load(std::memory_order_relaxed)) return std::nullopt;
  std::optional<Fault> fault = count_call(entry);
  if (fault) {
    injected_.fetch_add(1, std::memory_order_relaxed);
    last_injected = {this, *fault};
  }
  return fault;
}

}  // namespace cuvmm::driver
