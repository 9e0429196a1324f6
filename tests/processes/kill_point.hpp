// Kills a process of a test before or after a step of a protocol: a driver call, a message that is sent, a system call.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "driver/decorator.hpp"

namespace cuvmm::tests {

// One step: "send 0xfff1", "listen", "cuMemMap"; and which time it is done.
struct KillPoint {
  std::string step;
  int time = 1;
  bool before = true;
};

// From now on, when this process comes to that point, the victim is killed: this process itself, or the other one,
// which stands still during the step that it is killed after. Once.
void arm(const KillPoint& point, pid_t victim);

// This process is before or after the step.
void pass(const std::string& step, bool before);

// Passes each call of the driver.
class WatchedDriver final : public driver::Decorator<WatchedDriver> {
 public:
  explicit WatchedDriver(std::shared_ptr<driver::Interface> next) : Decorator(std::move(next)) {}

  template <driver::EntryPoint entry, class... Arguments>
  abi::CUresult around(Arguments... arguments) {
    const std::string name(driver::name(entry));
    pass(name, true);
    const abi::CUresult result = forward<entry>(arguments...);
    pass(name, false);
    return result;
  }
};

}  // namespace cuvmm::tests
