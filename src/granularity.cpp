#include "cuvmm/granularity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "cuvmm/units.hpp"
#include "refusal.hpp"

namespace cuvmm {

std::size_t combined_granularity(std::span<const std::size_t> granularities) {
  constexpr std::string_view call = "combined_granularity";
  if (granularities.empty()) raise(invalid_use(call, "none", "A common multiple is one of numbers", "Pass some"));
  std::size_t combined = 1;
  for (const std::size_t each : granularities) {
    if (each == 0) raise(invalid_use(call, "0", "A granularity is no less than one byte", "Ask the driver for it"));
    const std::size_t factor = each / std::gcd(combined, each);
    if (combined > SIZE_MAX / factor)
      raise(invalid_use(call, fmt::format("{} and {} bytes", combined, each), "Their common multiple has to fit",
                        "Pass what the driver answers"));
    combined *= factor;
  }
  return combined;
}

GranularFit fitted(std::size_t bytes, std::span<const std::size_t> granularities) {
  const std::size_t granularity = combined_granularity(granularities);
  return {.bytes = align_up(std::max<std::size_t>(bytes, 1), granularity),
          .granularity = granularity,
          .alignment = is_power_of_two(granularity) ? granularity : 0};
}

}  // namespace cuvmm
