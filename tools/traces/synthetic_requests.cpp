#include "traces/synthetic_requests.hpp"

#include "traces/draw.hpp"

namespace cuvmm::traces {

std::vector<Request> synthetic_requests(std::size_t count, std::uint64_t seed) {
  Draw draw(seed);
  std::vector<Request> requests;
  std::chrono::microseconds now{};
  while (requests.size() < count) {
    const std::uint64_t burst = 1 + draw.below(8);
    for (std::uint64_t i = 0; i < burst && requests.size() < count; ++i) {
      requests.push_back({now, draw.by_magnitude(16, 9), draw.by_magnitude(8, 7), {}});
      now += std::chrono::microseconds(draw.below(50'000));
    }
    now += std::chrono::microseconds(draw.below(4'000'000));
  }
  return requests;
}

}  // namespace cuvmm::traces
