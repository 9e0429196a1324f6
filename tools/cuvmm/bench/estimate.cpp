#include "bench/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace cuvmm::bench {

Estimate median_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  const auto at = [&](double rank) {
    const double last = n - 1;
    return samples[static_cast<std::size_t>(std::clamp(rank, 0.0, last))];
  };
  const std::size_t middle = samples.size() / 2;
  const double median = samples.size() % 2 != 0 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  const double half = 1.96 * std::sqrt(n) / 2;
  return {median, at(std::floor(n / 2 - half)), at(std::ceil(n / 2 + half))};
}

}  // namespace cuvmm::bench
