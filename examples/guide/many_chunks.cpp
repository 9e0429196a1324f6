#include <cuvmm/cuvmm.hpp>
#include <iostream>
#include <string>

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

  // guide: begin
  auto a = cuvmm::MappedRange::create(driver, {.capacity = 64_MiB});
  auto b = cuvmm::MappedRange::create(driver, {.capacity = 64_MiB});
  a.append(2_MiB);
  b.append(2_MiB);
  const cuvmm::CurrentContext context(first);
  cuvmm::copy_to_device(a, 0, std::string("this was behind a"));
  cuvmm::copy_to_device(b, 0, std::string("this was behind b"));
  const auto held = a.replace(0, b.memory_at(0));  // from here on both lead to the memory of b
  b.replace(0, held);                              // and from here on no longer
  std::string behind_a(17, ' ');
  std::string behind_b(17, ' ');
  cuvmm::copy_from_device(behind_a, a, 0);
  cuvmm::copy_from_device(behind_b, b, 0);
  std::cout << "a: " << behind_a << "; b: " << behind_b << '\n';
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
