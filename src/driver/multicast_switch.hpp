// Whether multicast may be used at all.
#pragma once

#include <string>
#include <vector>

namespace cuvmm::driver {

// Why the multicast entry points of a CUDA driver are not to be looked up, in a sentence; empty if they are.
[[nodiscard]] std::string why_multicast_is_off();

struct SwitchSetting {
  std::string variable;
  std::string value;
  bool off = false;  // this value turns multicast off
};

// The switches that are set in the environment, to whatever value.
[[nodiscard]] std::vector<SwitchSetting> multicast_switches_found();

}  // namespace cuvmm::driver
