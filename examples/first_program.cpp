#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <string>

int main() try {
  const auto driver = cuvmm::Driver::open();
  const cuvmm::CurrentContext context(driver.device(cuvmm::DeviceOrdinal{0}));
  auto range = cuvmm::MappedRange::create(driver);
  const std::string sent = "these bytes were on the device";
  const std::size_t offset = range.append(sent.size());
  cuvmm::copy_to_device(range, offset, sent);
  std::string received(sent.size(), ' ');
  cuvmm::copy_from_device(received, range, offset);
  std::cout << received << '\n';
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
