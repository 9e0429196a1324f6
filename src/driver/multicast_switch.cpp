#include "driver/multicast_switch.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace cuvmm::driver {

namespace {

struct Switch {
  const char* variable;
  std::string_view off;
};

// Our own, and those of NCCL, PyTorch and NVSHMEM: who has turned multicast off for them means the machine, not the
// library.
constexpr auto switches = std::to_array<Switch>({{"CUVMM_MULTICAST", "0"},
                                                 {"NCCL_NVLS_ENABLE", "0"},
                                                 {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"},
                                                 {"NVSHMEM_DISABLE_NVLS", "1"}});

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
      found.push_back({each.variable, value, value == each.off});
  return found;
}

}  // namespace cuvmm::driver
