#include "traces/synthetic_requests.hpp"

#include <random>

namespace cuvmm::traces {

namespace {

// Integers alone: distributions of the standard library differ from one to the other.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  // Each doubling of the range is as likely as any other.
  std::uint64_t by_magnitude(std::uint64_t least, unsigned doublings) {
    const std::uint64_t begin = least << below(doublings);
    return begin + below(begin + 1);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace

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
