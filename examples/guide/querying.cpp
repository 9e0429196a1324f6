#include <cuvmm/cuvmm.hpp>
#include <iostream>

int main() try {
  const auto driver = cuvmm::Driver::open();
  // guide: begin
  const cuvmm::Device device = driver.device(cuvmm::DeviceOrdinal{0});
  const auto say = [](const char* feature, bool announced) {
    std::cout << feature << (announced ? ": announced\n" : ": no\n");
  };
  say("virtual memory management", device.supports_virtual_memory_management());
  say("POSIX file descriptors", device.supports_handle_type(cuvmm::HandleType::posix_file_descriptor));
  say("fabric handles", device.supports_handle_type(cuvmm::HandleType::fabric));
  say("compression", device.supports_compression());
  say("host NUMA memory", device.supports_host_numa_memory());
  say("multicast", device.supports_multicast());

  const cuvmm::MemoryProperties wanted{.location = device.location(), .handle_types = cuvmm::HandleType::fabric};
  const std::size_t unit = cuvmm::PhysicalMemory::granularity(driver, wanted);
  std::cout << "granularity: " << cuvmm::format_bytes(unit) << '\n';
  const auto tried = cuvmm::PhysicalMemory::try_create(driver, wanted, unit);
  std::cout << (tried ? "fabric handles work here" : tried.failure().message()) << '\n';
  // guide: end
} catch (const cuvmm::Error& error) {
  return std::cerr << error.what() << '\n', 1;
}
