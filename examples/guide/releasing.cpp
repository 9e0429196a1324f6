#include <chrono>
#include <cuvmm/cuvmm.hpp>
#include <iostream>

#include "running_work.hpp"

using namespace cuvmm::literals;
using namespace std::chrono_literals;

int main() try {
  const auto driver = cuvmm::Driver::open();
  const cuvmm::CurrentContext context(driver.device(cuvmm::DeviceOrdinal{0}));
  // guide: begin
  const auto queue = cuvmm::RetireQueue::create(driver);
  auto range = cuvmm::MappedRange::create(
      driver, {.capacity = 64_MiB, .chunks = cuvmm::ChunkPolicy::fixed(2_MiB), .retire_queue = queue});
  range.append(4_MiB);
  guide::RunningWork work(range);
  range.used_on(work.stream());
  range.unmap(0, 2_MiB);  // returns at once
  std::cout << cuvmm::format_bytes(queue->pending_bytes()) << " wait, " << cuvmm::format_bytes(range.mapped_bytes())
            << " are left in the range\n";
  work.end();
  queue->poll();  // unmaps what is done, never waits
  std::cout << cuvmm::format_bytes(queue->pending_bytes()) << " wait\n";
  range.no_longer_used_on(work.stream());
  // guide: end

  // guide: begin
  auto other = cuvmm::MappedRange::create(driver, {.capacity = 64_MiB, .device_wait = 1ms});
  other.append(2_MiB);
  guide::RunningWork more(other);
  other.used_on(more.stream());
  const auto unmapped = other.try_unmap(0, 2_MiB);
  std::cout << (unmapped ? "unmapped" : unmapped.failure().message()) << '\n';
  more.end();
  other.unmap(0, 2_MiB);
  other.no_longer_used_on(more.stream());
  // guide: end
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
