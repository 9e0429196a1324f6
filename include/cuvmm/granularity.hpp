// Sizes and addresses that have to suit several granularities at once.
#pragma once

#include <cstddef>
#include <span>

namespace cuvmm {

// The least number that all are divisors of: what each device allocates in, and whatever else the memory is to be bound
// to. Throws InvalidUse for a granularity of 0, for none, and where that number does not fit.
[[nodiscard]] std::size_t combined_granularity(std::span<const std::size_t> granularities);

// How much, at which offsets and addresses: what suits all granularities in play.
struct GranularFit {
  std::size_t bytes = 0;        // the size asked for, rounded up
  std::size_t granularity = 1;  // sizes and offsets are multiples of this
  std::size_t alignment = 0;    // for AddressReservation::create; 0 where the granularity is no power of two

  friend constexpr bool operator==(const GranularFit&, const GranularFit&) noexcept = default;
};

// The fit of `bytes` bytes, and of 1 where that is 0, to granularities that are combined as above. Throws as that does,
// and InvalidUse where the size that is rounded up does not fit.
[[nodiscard]] GranularFit fitted(std::size_t bytes, std::span<const std::size_t> granularities);

}  // namespace cuvmm
