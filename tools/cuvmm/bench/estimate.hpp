// A number that was measured several times.
#pragma once

#include <vector>

namespace cuvmm::bench {

// A number and the interval that holds it with 95 per cent confidence.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
};

// The median, with the interval that order statistics give whatever the distribution is. Of five samples and fewer it
// is the lowest and the highest, which hold the median with less confidence. There is one sample at least.
[[nodiscard]] Estimate median_of(std::vector<double> samples);

}  // namespace cuvmm::bench
