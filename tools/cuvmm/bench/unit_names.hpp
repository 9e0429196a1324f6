// What units are called in JSON.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "bench/report.hpp"

namespace cuvmm::bench {

inline constexpr std::array<std::pair<Unit, std::string_view>, 4> unit_names{
    {{Unit::count, "count"},
     {Unit::bytes, "bytes"},
     {Unit::percent, "percent"},
     {Unit::gigabytes_a_second, "gigabytes_a_second"}}};

[[nodiscard]] constexpr std::string_view name_of(Unit unit) noexcept {
  for (const auto& [known, name] : unit_names)
    if (known == unit) return name;
  return unit_names.front().second;
}

[[nodiscard]] constexpr Unit unit_of_name(std::string_view wanted) noexcept {
  for (const auto& [unit, name] : unit_names)
    if (name == wanted) return unit;
  return Unit::count;
}

}  // namespace cuvmm::bench
