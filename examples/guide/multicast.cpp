#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <vector>

using namespace cuvmm::literals;

namespace {

void show(const cuvmm::Driver& driver, const cuvmm::Device& first, const cuvmm::Device& second) {
  // guide: begin
  const cuvmm::GranularFit fit =
      cuvmm::MulticastObject::fitted(driver, {.devices = 2, .bytes = 3'000'000}, {first.location()});
  auto object = cuvmm::MulticastObject::create(driver, {.devices = 2, .bytes = fit.bytes});
  for (const cuvmm::Device& device : {first, second}) object.add_device(device);  // all, before anything is bound
  std::cout << "an object of " << object.properties().bytes << " bytes for " << object.properties().devices
            << " devices, in units of " << object.granularity() << '\n';
  // guide: end

  // guide: begin
  std::vector<cuvmm::MappedRange> members;  // each device's own memory, at addresses of its own
  for (const cuvmm::Device& device : {first, second}) {
    const cuvmm::CurrentContext context(device);
    members.push_back(cuvmm::MappedRange::create(
        driver, {.capacity = fit.bytes, .memory = {device.location()}, .chunks = cuvmm::ChunkPolicy::exact()}));
    members.back().append(fit.bytes);
    object.bind(0, members.back().memory_at(0), 0, fit.bytes);
  }
  auto everywhere = object.map(cuvmm::AddressReservation::create(driver, fit.bytes));
  everywhere.grant(std::vector<cuvmm::AccessGrant>{{first.location()}, {second.location()}});
  std::cout << object.bindings() << " memories behind one address\n";
  // guide: end

  // guide: begin
  try {
    object.unbind(first, 0, fit.bytes);
  } catch (const cuvmm::InvalidUse& error) {
    std::cout << error.what() << '\n';
  }
  everywhere.unmap();
  object.unbind(first, 0, fit.bytes);
  // guide: end
}

}  // namespace

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto first = driver.device(cuvmm::DeviceOrdinal{0});
  const auto second = driver.device(cuvmm::DeviceOrdinal{1});
  const cuvmm::CurrentContext context(first);
  // guide: begin
  try {
    show(driver, first, second);
  } catch (const cuvmm::NotSupported& error) {
    std::cout << "Without multicast: " << error.what() << '\n';
  }
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
