#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <vector>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const cuvmm::CurrentContext context(device);
  // guide: begin
  auto tokens = cuvmm::DeviceVector<int>::create(driver);  // addresses for as much as the device has memory
  tokens.append(std::vector<int>{1, 2, 3});
  const int* const pointer = tokens.data();
  tokens.append_from_device(tokens.data(), tokens.size());
  tokens.reserve(100'000'000);
  std::cout << tokens.size() << " tokens, room for " << tokens.capacity() << ", the pointer "
            << (tokens.data() == pointer ? "is the same" : "has changed") << '\n';
  // guide: end

  // guide: begin
  for (const auto& policy :
       {cuvmm::ChunkPolicy::exact(), cuvmm::ChunkPolicy::bounded(0.02), cuvmm::ChunkPolicy::geometric()}) {
    auto grown = cuvmm::DeviceVector<int>::create(driver, {.chunks = policy});
    for (int i = 1; i <= 65; ++i) grown.resize(i * (2_MiB / sizeof(int)));
    std::cout << policy.to_string() << ": " << grown.buffer().range().chunks().size() << " chunks, "
              << cuvmm::format_bytes(grown.buffer().capacity() - grown.buffer().size()) << " unused\n";
  }
  // guide: end

  // guide: begin
  auto log = cuvmm::DeviceVector<int>::create(driver, {.capacity = 2_MiB});
  log.append(std::vector<int>{7, 8, 9});
  const auto taken = cuvmm::AddressReservation::create(driver, 2_MiB, 0, log.address() + 2_MiB);  // somebody else
  const cuvmm::DeviceAddress before = log.address();
  log.resize(1'000'000);
  std::cout << "the pointer " << (log.address() == before ? "is the same" : "has changed") << '\n';
  log.write(1, std::vector<int>{80});
  std::vector<int> seen(3);
  cuvmm::copy_bytes_from_device(driver, std::as_writable_bytes(std::span(seen)), before);
  std::cout << "through the former one: " << seen[0] << ' ' << seen[1] << ' ' << seen[2] << '\n';
  log.buffer().release_former();
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
