#include <cuvmm/cuvmm.hpp>
#include <iostream>

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const cuvmm::CurrentContext context(device);
  const cuvmm::MemoryProperties properties{.location = device.location()};
  const auto memory = cuvmm::PhysicalMemory::create(driver, properties, device.granularity());
  const auto addresses = cuvmm::AddressReservation::create(driver, memory.size());
  const auto mapping = cuvmm::Mapping::create(addresses, 0, memory);
  cuvmm::grant(mapping, device.location(), cuvmm::AccessRights::read_write);
  const std::string sent = "these bytes were on the device";
  std::string received(sent.size(), ' ');
  cuvmm::copy_to_device(mapping, 0, sent);
  cuvmm::copy_from_device(received, mapping, 0);
  std::cout << received << '\n';
} catch (const cuvmm::Error& error) {
  return std::cerr << error.what() << '\n', 1;
}
