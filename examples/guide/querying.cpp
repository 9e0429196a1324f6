#include <cuvmm/cuvmm.hpp>
#include <iostream>

int main() try {
  const auto driver = cuvmm::Driver::open();
  // guide: begin
  const cuvmm::Device device = driver.device(cuvmm::DeviceOrdinal{0});
  const auto can = cuvmm::Capabilities::of(device, {.trials = true});
  for (const cuvmm::Feature feature : {cuvmm::Feature::virtual_memory_management, cuvmm::Feature::compression,
                                       cuvmm::Feature::fabric_handles, cuvmm::Feature::multicast})
    std::cout << to_string(feature) << ": " << to_string(can[feature].state) << '\n';
  if (const cuvmm::Capability& multicast = can[cuvmm::Feature::multicast]; !can.has(cuvmm::Feature::multicast))
    std::cout << multicast.reason << ".\n" << multicast.remedy << ".\n";
  // guide: end

  // guide: begin
  const cuvmm::MemoryProperties wanted{.location = device.location(), .handle_types = cuvmm::HandleType::fabric};
  const std::size_t unit = cuvmm::PhysicalMemory::granularity(driver, wanted);
  std::cout << "granularity: " << cuvmm::format_bytes(unit) << '\n';
  const auto tried = cuvmm::PhysicalMemory::try_create(driver, wanted, unit);
  std::cout << (tried ? "fabric handles work here" : tried.failure().message()) << '\n';
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
