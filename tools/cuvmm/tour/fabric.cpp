#include "tour/fabric.hpp"

#include <fmt/core.h>

#include "command/imex_words.hpp"
#include "cuvmm/physical_memory.hpp"
#include "driver/emulation.hpp"

namespace cuvmm::tour {

std::string why_no_fabric_handles(const Device& device, const Location& location) {
  if (!device.supports_handle_type(HandleType::fabric)) return "the device does not offer them";
  const Driver& driver = device.driver();
  const MemoryProperties properties{.location = location, .handle_types = HandleType::fabric};
  const auto tried = PhysicalMemory::try_create(driver, properties, PhysicalMemory::granularity(driver, properties));
  if (tried || tried.failure().code != abi::CUDA_ERROR_NOT_PERMITTED) return {};
  return fmt::format("there is {}: {}", command::no_usable_imex_channel,
                     driver::is_emulation(driver.interface())
                         ? "emulate a machine that has one, CUVMM_EMULATOR=profile=gb200"
                         : "have one created in /dev/nvidia-caps-imex-channels and made accessible to this user");
}

}  // namespace cuvmm::tour
