// Two ways of doing the same, measured in turn within one run.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace cuvmm::bench {

// A number and the interval that holds it with 95 per cent confidence.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;
};

// The median, with the interval that order statistics give whatever the distribution is.
inline Estimate median_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  const auto at = [&](double rank) {
    const double last = n - 1;
    return samples[static_cast<std::size_t>(std::clamp(rank, 0.0, last))];
  };
  const double half = 1.96 * std::sqrt(n) / 2;
  return {at(n / 2), at(std::floor(n / 2 - half)), at(std::ceil(n / 2 + half))};
}

// How long it takes once.
template <class Work>
double milliseconds(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

struct Comparison {
  Estimate first_us;   // microseconds of one round
  Estimate second_us;  // of the other
  Estimate ratio;      // second / first, pair by pair
};

// Does both in turn, the second first in every other pair, so that what changes while it runs falls on both alike.
template <class First, class Second>
Comparison compare(int pairs, First&& first, Second&& second) {
  const auto microseconds = [](auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  };
  for (int i = 0; i < 1 + pairs / 10; ++i) {  // not counted
    first();
    second();
  }
  std::vector<double> firsts;
  std::vector<double> seconds;
  std::vector<double> ratios;
  for (int i = 0; i < pairs; ++i) {
    const bool turned = i % 2 != 0;
    const double early = turned ? microseconds(second) : microseconds(first);
    const double late = turned ? microseconds(first) : microseconds(second);
    firsts.push_back(turned ? late : early);
    seconds.push_back(turned ? early : late);
    ratios.push_back(seconds.back() / firsts.back());
  }
  return {median_of(std::move(firsts)), median_of(std::move(seconds)), median_of(std::move(ratios))};
}

}  // namespace cuvmm::bench
