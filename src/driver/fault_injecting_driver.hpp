// Makes chosen calls fail.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "driver/decorator.hpp"
#include "driver/fault.hpp"

namespace cuvmm::driver {

// Fails calls as the faults say; a fault that has happened and is not a lasting one is forgotten. Where several are due
// at one call, the one that was added first answers. Thread-safe: each call is counted once, by one thread.
class FaultInjectingDriver final : public Decorator<FaultInjectingDriver> {
 public:
  explicit FaultInjectingDriver(std::shared_ptr<Interface> next, const std::vector<Fault>& faults = {});

  // Adds a fault; its calls are counted from now.
  void inject(const Fault& fault);

  // Forgets all faults.
  void clear();

  // How many calls were made to fail so far.
  [[nodiscard]] std::uint64_t injected() const noexcept { return injected_.load(std::memory_order_relaxed); }

  [[nodiscard]] std::string explanation() const override;  // of an injected fault: that it was one

  template <EntryPoint entry, class... Arguments>
  CUresult around(Arguments... arguments) {
    const std::optional<Fault> fault = due(entry);
    if (!fault) return forward<entry>(arguments...);
    if (fault->timing == FaultTiming::after) static_cast<void>(forward<entry>(arguments...));
    return fault->result;
  }

 private:
  struct Armed {
    Fault fault;
    std::uint64_t seen = 0;
  };

  // Counts this call; the fault that it must fail with, if any.
  std::optional<Fault> due(EntryPoint entry);
  std::optional<Fault> count_call(EntryPoint entry);

  std::mutex mutex_;
  std::vector<Armed> armed_;
  std::atomic<bool> any_armed_ = false;
  std::atomic<std::uint64_t> injected_ = 0;
};

}  // namespace cuvmm::driver
