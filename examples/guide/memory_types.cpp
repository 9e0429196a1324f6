#include <algorithm>
#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <vector>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const cuvmm::CurrentContext context(device);
  // guide: begin
  const auto node = cuvmm::Location::host_numa(std::max(device.host_numa_node(), 0));
  auto range = cuvmm::MappedRange::create(driver, {.capacity = 64_MiB,
                                                   .memory = {.location = node},
                                                   .grants = {{node, cuvmm::AccessRights::read_write},
                                                              {device.location(), cuvmm::AccessRights::read_write}}});
  range.append(2_MiB);
  range.address().as_pointer<int>()[7] = 42;  // the CPU writes
  std::vector<int> received(8);
  cuvmm::copy_from_device(received, range, 0);  // the device reads
  std::cout << "memory of " << to_string(node) << ", read by the device: " << received[7] << '\n';
  // guide: end

  // guide: begin
  const auto refused = cuvmm::MappedRange::try_create(
      driver, {.memory = {.location = device.location()}, .grants = {{node, cuvmm::AccessRights::read_write}}});
  std::cout << (refused ? "granted" : refused.failure().message()) << '\n';
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
