#include "driver/multicast_switch.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace cuvmm::driver {

namespace {

// Of cuvmm's own switch every value but 1 means off: who sets it to a word that it does not know wants no multicast.
constexpr std::string_view own_switch = "CUVMM_MULTICAST";

struct Switch {
  const char* variable;
  std::string_view off;
};

// Those of NCCL, PyTorch and NVSHMEM: who has turned multicast off for them means the machine, not the library.
constexpr auto switches = std::to_array<Switch>({{own_switch.data(), "0"},
                                                 {"NCCL_NVLS_ENABLE", "0"},
                                                 {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"},
                                                 {"NVSHMEM_DISABLE_NVLS", "1"}});

bool turns_off(const Switch& each, std::string_view value) {
  return each.variable == own_switch ? value != "1" : value == each.off;
}

}  // namespace

std::string why_multicast_is_off() {
  if (!CUVMM_RESOLVE_MULTICAST) return "This build of cuvmm leaves multicast out (CUVMM_RESOLVE_MULTICAST=OFF)";
  for (const SwitchSetting& each : multicast_switches_found())
    if (each.off) return fmt::format("Multicast is turned off by {}={} in the environment", each.variable, each.value);
  return {};
}

std::vector<SwitchSetting> multicast_switches_found() {
  std::vector<SwitchSetting> found;
  for (const Switch& each : switches)
    if (const char* const value = std::getenv(each.variable); value != nullptr)
      found.push_back({each.variable, value, turns_off(each, value)});
  return found;
}

}  // namespace cuvmm::driver
