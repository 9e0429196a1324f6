#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <string>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  const std::string sent = "written by device 0";
  std::string received(sent.size(), ' ');
  // guide: begin
  const auto first = driver.device(cuvmm::DeviceOrdinal{0});
  const auto second = driver.device(cuvmm::DeviceOrdinal{1});
  auto range = cuvmm::MappedRange::create(driver, {.capacity = 64_MiB,
                                                   .grants = {{first.location(), cuvmm::AccessRights::read_write},
                                                              {second.location(), cuvmm::AccessRights::read}}});
  range.append(2_MiB);
  const std::size_t later = range.append(2_MiB);  // has the same rights as the first chunk
  {
    const cuvmm::CurrentContext context(first);
    cuvmm::copy_to_device(range, later, sent);
  }
  const cuvmm::CurrentContext context(second);
  cuvmm::copy_from_device(received, range, later);
  std::cout << received << '\n';
  try {
    cuvmm::copy_to_device(range, later, sent);
  } catch (const cuvmm::InvalidUse& error) {
    std::cout << error.what() << '\n';
  }
  range.grant(second.location(), cuvmm::AccessRights::read_write);
  cuvmm::copy_to_device(range, later, sent);
  range.revoke(second.location());
  std::cout << "locations with rights: " << range.grants().size() << '\n';
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
