// Random numbers that are the same on every machine.
#pragma once

#include <cstdint>
#include <random>

namespace cuvmm::traces {

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
  // The logarithm is uniform, within the doublings, too.
  std::uint64_t by_logarithm(std::uint64_t least, unsigned doublings) {
    const std::uint64_t begin = least << below(doublings);
    while (true) {
      const std::uint64_t number = begin + below(begin + 1);
      if (below(number) < begin) return number;
    }
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace cuvmm::traces
