#include "cuvmm/units.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "cuvmm/error.hpp"

namespace cuvmm {

std::size_t align_up(std::size_t bytes, std::size_t granularity) {
  if (const auto aligned = checked_align_up(bytes, granularity)) return *aligned;
  Failure failure;
  failure.kind = ErrorKind::invalid_use;
  failure.call = "cuvmm::align_up";
  failure.arguments = fmt::format("bytes = {}, granularity = {}", bytes, granularity);
  failure.rule = granularity == 0 ? "The granularity must not be 0"
                                  : "The size rounded up to the granularity must fit the address space of 2^64 bytes";
  failure.way_out = granularity == 0 ? "Ask the device for its granularity" : "Ask for fewer bytes";
  raise(failure);
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr auto units = std::to_array<std::string_view>({"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"});
  std::size_t unit = 0;
  while (unit + 1 < units.size() && (bytes >> (10 * (unit + 1))) != 0) ++unit;
  const std::uint64_t one = std::uint64_t{1} << (10 * unit);
  if (bytes % one == 0) return fmt::format("{} {}", bytes / one, units[unit]);
  const double value = static_cast<double>(bytes) / static_cast<double>(one);
  const bool halves_and_quarters = one % 4 == 0 && bytes % (one / 4) == 0;
  if (halves_and_quarters) return fmt::format("{:g} {}", value, units[unit]);
  return fmt::format("about {:.2f} {}", value, units[unit]);
}

}  // namespace cuvmm
