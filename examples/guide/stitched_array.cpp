#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <vector>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto first = driver.device(cuvmm::DeviceOrdinal{0});
  const auto second = driver.device(cuvmm::DeviceOrdinal{1});
  const cuvmm::CurrentContext context(first);
  // guide: begin
  auto weights = cuvmm::StitchedArray<float>::create(
      driver, 5'000'000, {.locations = {first.location(), second.location(), cuvmm::Location::host_numa(0)}});
  for (const auto& part : weights.parts())
    std::cout << "elements " << part.first << " to " << part.first + part.count - 1 << ": " << to_string(part.location)
              << '\n';
  weights.write(2'000'000, std::vector<float>(1'000'000, 1.5F));  // across the border of two devices
  // guide: end

  // guide: begin
  for (const cuvmm::AccessGrant& grant : weights.memory().grants())
    std::cout << to_string(grant.location) << " may " << to_string(grant.rights) << '\n';
  std::cout << weights.memory().unreachable().size() << " devices cannot reach all of it\n";
  // guide: end

  // guide: begin
  cuvmm::StitchedOptions options{.locations = {first.location(), second.location()},
                                 .layout = cuvmm::StitchedLayout::cyclic(4_MiB)};
  options.on_warning = [](const std::string& warning) { std::cout << warning << '\n'; };
  const auto table = cuvmm::StitchedArray<float>::create(driver, 4'000'000, options);
  for (const auto& part : table.parts_at(second.location()))
    std::cout << "local to the second: " << part.count << " elements from " << part.first << '\n';
  options.layout = cuvmm::StitchedLayout::cyclic(2_MiB);
  const auto large = cuvmm::StitchedArray<float>::create(driver, 400'000'000, options);
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
