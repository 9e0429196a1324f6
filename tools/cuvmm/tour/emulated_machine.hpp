// The machine that the tour emulates, in all of its processes.
#pragma once

#include "command/driver_choice.hpp"

namespace cuvmm::tour {

// Unless the environment says otherwise, one on which every stop can be shown.
[[nodiscard]] inline command::EmulatedMachine emulated_machine() {
  return {"profile=h200-multicast,devices=8,imex-channels=1"};
}

}  // namespace cuvmm::tour
