#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <string>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const cuvmm::CurrentContext context(device);
  // guide: begin
  auto writer = cuvmm::MappedRange::create(driver, {.capacity = 64_MiB});
  writer.append(2_MiB);
  auto reader = cuvmm::MappedRange::create(
      driver, {.capacity = 64_MiB, .grants = {{device.location(), cuvmm::AccessRights::read}}});
  reader.append(writer.memory_at(0));
  reader.append(writer.memory_at(0));  // once more behind it: reading goes on past the end

  cuvmm::copy_to_device(writer, 2_MiB - 7, std::string("around "));
  cuvmm::copy_to_device(writer, 0, std::string("the end"));
  std::string received(14, ' ');
  cuvmm::copy_from_device(received, reader, 2_MiB - 7);
  std::cout << received << '\n';
  try {
    cuvmm::copy_to_device(reader, 0, received);
  } catch (const cuvmm::InvalidUse& error) {
    std::cout << error.what() << '\n';
  }
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
