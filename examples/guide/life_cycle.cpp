#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <string>

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const cuvmm::CurrentContext context(device);
  const std::string sent = "still there";
  std::string received(sent.size(), ' ');
  // guide: begin
  const cuvmm::MemoryProperties properties{.location = device.location()};
  const std::size_t bytes = cuvmm::PhysicalMemory::rounded_up(driver, properties, 3'000'000);
  auto memory = cuvmm::PhysicalMemory::create(driver, properties, bytes);     // cuMemCreate
  auto addresses = cuvmm::AddressReservation::create(driver, 4 * bytes);      // cuMemAddressReserve
  auto mapping = cuvmm::Mapping::create(addresses, bytes, memory);            // cuMemMap
  cuvmm::grant(mapping, device.location(), cuvmm::AccessRights::read_write);  // cuMemSetAccess
  cuvmm::copy_to_device(mapping, 0, sent);

  memory.release();  // cuMemRelease: the mapping keeps the memory
  cuvmm::copy_from_device(received, mapping, 0);
  std::cout << received << '\n';
  try {
    addresses.free();
  } catch (const cuvmm::InvalidUse& error) {
    std::cout << error.what() << '\n';
  }
  mapping.unmap();   // cuMemUnmap: the memory goes back to the device
  addresses.free();  // cuMemAddressFree
  // guide: end

  // guide: begin
  auto range = cuvmm::MappedRange::create(driver);
  const std::size_t offset = range.append(3'000'000);
  cuvmm::copy_to_device(range, offset, sent);
  std::cout << range.size() << " bytes of content, " << range.mapped_bytes() << " mapped\n";
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
