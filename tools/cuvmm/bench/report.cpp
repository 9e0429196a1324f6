#include "bench/report.hpp"

#include <algorithm>

namespace cuvmm::bench {
namespace {

double amount(const Cost& cost, bool counts) {
  return counts ? static_cast<double>(cost.driver_calls) : cost.milliseconds;
}

std::vector<double> ratios_of(const Way& above, const Way& below, bool counts) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < std::min(above.costs.size(), below.costs.size()); ++round)
    if (const double divisor = amount(below.costs[round], counts); divisor != 0)
      ratios.push_back(amount(above.costs[round], counts) / divisor);
  return ratios;
}

}  // namespace

const Way* Report::way(const std::string& wanted) const noexcept {
  const auto found = std::find_if(ways.begin(), ways.end(), [&](const Way& each) { return each.name == wanted; });
  return found == ways.end() || found->costs.empty() ? nullptr : &*found;
}

Estimate milliseconds_of(const Way& way) {
  std::vector<double> samples;
  for (const Cost& each : way.costs) samples.push_back(each.milliseconds);
  return median_of(std::move(samples));
}

std::vector<Compared> compared(const Report& report, bool counts) {
  std::vector<Compared> list;
  for (const Ratio& each : report.ratios) {
    const Way* const of = report.way(each.of);
    const Way* const to = report.way(each.to);
    if (of == nullptr || to == nullptr || (counts && each.of_speed)) continue;
    auto ratios = each.of_speed ? ratios_of(*to, *of, counts) : ratios_of(*of, *to, counts);
    if (ratios.empty()) continue;
    Compared found{each, median_of(std::move(ratios)), {}};
    if (each.goal && !counts)
      found.met = each.of_speed ? found.value.value >= *each.goal : found.value.value <= *each.goal;
    list.push_back(found);
  }
  return list;
}

std::vector<Limited> limited(const Report& report, bool counts) {
  std::vector<Limited> list;
  if (counts) return list;
  for (const Limit& each : report.limits) {
    const Way* const way = report.way(each.way);
    if (way == nullptr) continue;
    const Estimate whole = milliseconds_of(*way);
    Limited found{each, {whole.value / each.divisor, whole.low / each.divisor, whole.high / each.divisor}, {}};
    found.met = found.value.value <= each.milliseconds;
    list.push_back(found);
  }
  return list;
}

}  // namespace cuvmm::bench
