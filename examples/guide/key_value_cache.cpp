#include <cuvmm/cuvmm.hpp>
#include <iostream>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  const auto device = driver.device(cuvmm::DeviceOrdinal{0});
  const cuvmm::CurrentContext context(device);
  // guide: begin
  const std::size_t token = 2048;  // bytes of keys, and of values: 8 heads of 128 numbers of 16 bits
  const auto source =
      cuvmm::PhysicalSource::create(driver, {.budgets = {{device.location(), 12_MiB}}, .recycle_limit = 12_MiB});
  const cuvmm::MappedRangeOptions options{
      .capacity = 1_GiB, .chunks = cuvmm::ChunkPolicy::fixed(2_MiB), .source = source};
  auto keys = cuvmm::MappedRange::create(driver, options);
  auto values = cuvmm::MappedRange::create(driver, options);
  for (const std::size_t tokens : {1000, 2000, 200}) {
    const auto grown = cuvmm::try_append_all({{&keys, tokens * token}, {&values, tokens * token}});
    std::cout << (grown ? "grown to " : "no room for more: ") << keys.size() / token << " and " << values.size() / token
              << " tokens in " << cuvmm::format_bytes(keys.mapped_bytes() + values.mapped_bytes()) << '\n';
  }
  // guide: end

  // guide: begin
  for (cuvmm::MappedRange* range : {&keys, &values}) range->truncate(1000 * token);
  std::cout << "kept 1000 tokens in " << cuvmm::format_bytes(keys.mapped_bytes() + values.mapped_bytes()) << ", "
            << cuvmm::format_bytes(source->counters().recyclable_bytes) << " wait for re-use\n";
  // guide: end

  // guide: begin
  for (const auto& policy : {cuvmm::ChunkPolicy::fixed(2_MiB), cuvmm::ChunkPolicy::geometric()}) {
    auto range = cuvmm::MappedRange::create(driver, {.capacity = 1_GiB, .chunks = policy});
    for (int i = 0; i < 8; ++i) range.append(2_MiB);
    range.truncate(9_MiB);
    std::cout << policy.to_string() << ": 9 MiB of 16 kept, " << cuvmm::format_bytes(range.mapped_bytes())
              << " still mapped\n";
  }
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
