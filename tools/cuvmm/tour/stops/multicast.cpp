#include "tour/stops/multicast.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"

namespace cuvmm::tour {

std::size_t half_of_multicast_window(const Visit& visit, const TeamDevices& devices) {
  const std::size_t unit = multicast_unit(devices.root().device(), devices.root().device().granularity());
  return window_bytes(visit.input.size(), unit, devices.free_memory()) / unit / 2 * unit;
}

std::string team_in_words(std::size_t ranks) {
  return fmt::format("a team of {}", ranks);
}

void require_broadcast(Visit& visit, TeamMemory& memory, std::size_t root, const std::string& what) {
  constexpr std::size_t most = 64 << 10;
  const std::vector<std::byte> sample = sample_of_input(visit.input, std::min(most, memory.bytes()));
  ContentChecksum expected;
  expected.add(sample);
  const std::size_t offset = (memory.bytes() - sample.size()) / 2;
  memory.broadcast(root, offset, sample);
  for (std::size_t rank = 0; rank < memory.ranks(); ++rank) {
    const std::uint64_t seen = memory.checksum(rank, offset, sample.size(), 0);
    visit.checks.require(seen == expected.value(),
                         fmt::format("{}: what device {} stores is in the memory of device {}", what,
                                     memory.device(root).gpu().ordinal(), memory.device(rank).gpu().ordinal()),
                         fmt::format("a kernel there saw {:016x} and not {:016x}", seen, expected.value()));
  }
}

void broadcast_input(Visit& visit, TeamMemory& memory, const std::string& what) {
  std::vector<std::uint64_t> seen(memory.ranks(), 0);
  for_each_piece(visit, memory.bytes(), [&](std::uint64_t offset, std::span<std::byte> piece) {
    memory.broadcast(0, 0, piece);
    for (std::size_t rank = 0; rank < memory.ranks(); ++rank)
      seen[rank] += memory.checksum(rank, 0, piece.size(), offset / gpu::checksum_word_bytes);
  });
  for (std::size_t rank = 0; rank < memory.ranks(); ++rank)
    require_checksum(
        visit, seen[rank],
        fmt::format("{}: a kernel of device {} sees the input", what, memory.device(rank).gpu().ordinal()));
}

}  // namespace cuvmm::tour
