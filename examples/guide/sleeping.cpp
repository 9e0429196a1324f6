#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <string>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const cuvmm::CurrentContext context(device);
  auto weight_range = cuvmm::MappedRange::create(driver);
  auto cache_range = cuvmm::MappedRange::create(driver);
  weight_range.append(4_MiB);
  cache_range.append(8_MiB);
  // guide: begin
  auto memory = cuvmm::SleepableMemory::create(driver);
  auto weights = memory.add("weights", std::move(weight_range), {.content = cuvmm::SleepingContent::pageable});
  auto cache =
      memory.add("cache", std::move(cache_range), {.content = cuvmm::SleepingContent::discarded}, "keys and values");
  const std::string learned = "what was learned";
  cuvmm::copy_to_device(weights.range(), 0, learned);

  const auto slept = memory.sleep({"weights", "cache"});
  std::cout << cuvmm::format_bytes(slept.bytes_given_back) << " were given back, "
            << cuvmm::format_bytes(slept.bytes_saved) << " of content are kept\n";
  std::cout << "the host holds " << cuvmm::format_bytes(memory.holdings().pageable_bytes) << " for that\n";
  // guide: end

  // guide: begin
  memory.wake("weights");
  std::string text(learned.size(), ' ');
  cuvmm::copy_from_device(text, weights.range(), 0);
  std::cout << "at the same address: '" << text << "'\n";
  try {
    cuvmm::copy_to_device(cache.range(), 0, learned);
  } catch (const cuvmm::InvalidUse& error) {
    std::cout << error.what() << '\n';
  }
  // guide: end

  // guide: begin
  for (const auto& each : memory.wake("cache").lost)
    std::cout << each.name << ": " << cuvmm::format_bytes(each.bytes) << " of content are lost\n";
  const auto pin = weights.range().pin("registered with a network card");
  try {
    memory.sleep("weights");
  } catch (const cuvmm::InvalidUse& error) {
    std::cout << error.what() << '\n';
  }
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
