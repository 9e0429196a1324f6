#include <cuvmm/cuvmm.hpp>
#include <iostream>

using namespace cuvmm::literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  // guide: begin
  auto range = cuvmm::MappedRange::create(driver, {.memory = {.compression = true}});
  range.append(2_MiB);
  std::cout << "asked for compression, " << (range.properties().compression ? "got it" : "did without it") << '\n';

  auto demanding = cuvmm::MappedRange::create(driver, {.memory = {.compression = true}, .require_features = true});
  const auto appended = demanding.try_append(2_MiB);
  std::cout << (appended ? "demanded it, got it" : appended.failure().message()) << '\n';
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
