#include <cuvmm/cuvmm.hpp>
#include <iostream>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  // guide: begin
  const auto first = driver.device(cuvmm::DeviceOrdinal{0});
  const auto second = driver.device(cuvmm::DeviceOrdinal{1});
  const auto source = cuvmm::PhysicalSource::create(driver, {.budgets = {{first.location(), 16_MiB}}});
  auto range = cuvmm::MappedRange::create(
      driver, {.capacity = 1_GiB, .chunks = cuvmm::ChunkPolicy::geometric(16_MiB), .source = source});
  for (int i = 0; i < 5; ++i) range.append(3_MiB);
  for (const cuvmm::ChunkInfo& chunk : range.chunks())
    std::cout << "at " << cuvmm::format_bytes(chunk.offset) << ": " << cuvmm::format_bytes(chunk.bytes) << " of "
              << to_string(chunk.location) << '\n';
  // guide: end

  // guide: begin
  const auto appended = range.try_append(10_MiB);
  if (!appended) std::cout << appended.failure().message() << '\n';
  std::cout << "size after that: " << cuvmm::format_bytes(range.size()) << '\n';
  const std::size_t lent = range.append(10_MiB, second.location());
  std::cout << "at " << cuvmm::format_bytes(lent) << " begins memory of "
            << to_string(range.memory_at(lent).properties().location) << '\n';
  // guide: end

  // guide: begin
  const cuvmm::SharedPhysicalMemory fresh = source->acquire({.location = second.location()}, 8_MiB);
  const cuvmm::SharedPhysicalMemory old = range.replace(8_MiB, fresh);
  std::cout << "now of " << to_string(range.memory_at(8_MiB).properties().location) << ", before of "
            << to_string(old.properties().location) << ", generation " << range.generation() << '\n';
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
