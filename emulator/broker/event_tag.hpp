// What an event of the broker's is of.
#pragma once

#include <cstdint>

namespace cuvmm::emulator::broker {

// The kind in the highest bits, its number below.
enum class Source : std::uint64_t { listener, connection, process, kept_end };
constexpr int source_shift = 60;

constexpr std::uint64_t tag(Source source, std::uint64_t number) {
  return static_cast<std::uint64_t>(source) << source_shift | number;
}
constexpr Source source_of(std::uint64_t tag) {
  return static_cast<Source>(tag >> source_shift);
}
constexpr std::uint64_t number_of(std::uint64_t tag) {
  return tag & ((std::uint64_t{1} << source_shift) - 1);
}

}  // namespace cuvmm::emulator::broker
