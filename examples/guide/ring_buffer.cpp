#include <algorithm>
#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <string>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const cuvmm::CurrentContext context(device);
  // guide: begin
  auto ring = cuvmm::RingBuffer::create(driver, {.bytes = 1_MiB});
  std::cout << cuvmm::format_bytes(ring.size()) << " of memory behind " << cuvmm::format_bytes(ring.range().size())
            << " of addresses\n";
  ring.commit(ring.size() - 7);  // as if so much had been written
  ring.release(ring.size() - 7);

  const std::string sent = "around the end";
  const auto window = ring.write_window(sent.size());
  cuvmm::copy_bytes_to_device(driver, *window, std::as_bytes(std::span(sent)));  // or a kernel writes it
  ring.commit(sent.size());

  std::string beginning(7, ' ');
  cuvmm::copy_bytes_from_device(driver, std::as_writable_bytes(std::span(beginning)), ring.address());
  std::cout << "at the beginning lies '" << beginning << "'\n";
  // guide: end

  // guide: begin
  std::string received(100, ' ');
  received.resize(ring.read(std::as_writable_bytes(std::span(received))));
  std::cout << "read: '" << received << "', and " << ring.readable() << " bytes are left\n";
  std::cout << (ring.write_window(ring.size()) ? "all of it" : "nothing") << " can be written\n";
  try {
    ring.release(1);
  } catch (const cuvmm::InvalidUse& error) {
    std::cout << error.what() << '\n';
  }
  // guide: end

  // guide: begin
  const auto node = cuvmm::Location::host_numa(std::max(0, device.host_numa_node()));
  auto shared =
      cuvmm::RingBuffer::create(driver, {.bytes = 1_MiB,
                                         .memory = {node},
                                         .grants = {{cuvmm::Location::host(), cuvmm::AccessRights::read_write},
                                                    {device.location(), cuvmm::AccessRights::read_write}}});
  const std::string by_cpu = "written by the CPU";
  std::ranges::copy(by_cpu, shared.write_window(by_cpu.size())->as_pointer<char>());
  shared.commit(by_cpu.size());
  std::string by_device(by_cpu.size(), ' ');
  shared.read(std::as_writable_bytes(std::span(by_device)));
  std::cout << by_device << ", read by the device\n";
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
