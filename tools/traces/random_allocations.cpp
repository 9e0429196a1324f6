#include "traces/random_allocations.hpp"

#include <fmt/format.h>

#include "traces/draw.hpp"

namespace cuvmm::traces {

AllocationTrace random_allocations(const RandomAllocations& settings) {
  if (settings.live_bytes < most_random_bytes)
    throw Broken(
        fmt::format("at least {} bytes have to be live, so that the largest allocation fits", most_random_bytes));
  Draw draw(settings.seed);
  AllocationRecorder recorder;
  struct Live {
    std::uint64_t address, bytes;
  };
  std::vector<Live> live;
  std::uint64_t live_bytes = 0;
  for (std::uint64_t address = 1; address <= settings.count; ++address) {
    const std::uint64_t bytes = draw.by_logarithm(least_random_bytes, 14);
    while (live_bytes + bytes > settings.live_bytes) {
      Live& freed = live[draw.below(live.size())];
      recorder.free(freed.address, {});
      live_bytes -= freed.bytes;
      freed = live.back();
      live.pop_back();
    }
    recorder.allocate(address, bytes, 0, {});
    live.push_back({address, bytes});
    live_bytes += bytes;
  }
  return std::move(recorder).finish(fmt::format("random allocations of seed {}", settings.seed));
}

}  // namespace cuvmm::traces
