// The memory by which the ranks of a team meet: how much of it each has, and what lies where.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cuvmm/error.hpp"
#include "cuvmm/gpu/collective_team.cuh"
#include "cuvmm/units.hpp"

namespace cuvmm::gpu {

// What a team of ranks has room for. See refusal_of().
struct CollectiveOptions {
  std::uint32_t blocks = 132;             // of one call at most
  std::uint32_t lines_per_block = 2048;   // for small content (flagged_capacity())
  std::size_t staging_bytes = 64U << 20;  // for what one rank writes to another at once (staged_capacity())
  std::chrono::nanoseconds time_limit = std::chrono::seconds(5);  // of a wait for another rank
  bool multicast = false;  // whether to have multicast addresses as well, where all devices can
};

// What is wrong with them, for that many ranks (InvalidUse, with the way out), or nothing.
[[nodiscard]] std::optional<Failure> refusal_of(std::string_view call, const CollectiveOptions& options,
                                                std::size_t ranks);

// For options that are not refused. The same on all ranks. First comes what is reached by multicast, where the team has
// that; the first zero_bytes() have to be zeros before any rank's first call.
class MeetingMemory {
 public:
  MeetingMemory(const CollectiveOptions& options, std::uint32_t ranks) noexcept
      : options_(options),
        ranks_(ranks),
        states_(options.blocks * sizeof(Arrivals)),
        lines_(states_ + (options.blocks * sizeof(BlockState) + 127) / 128 * 128),
        staging_(lines_ + line_count(ranks, options.blocks, options.lines_per_block) * sizeof(Line)) {}

  [[nodiscard]] std::size_t bytes() const noexcept {
    return staging_ + staging_count(ranks_, staging_packs()) * sizeof(Pack);
  }
  [[nodiscard]] std::size_t zero_bytes() const noexcept { return staging_; }
  [[nodiscard]] std::size_t multicast_bytes() const noexcept { return states_; }
  [[nodiscard]] std::size_t states() const noexcept { return states_; }  // where this rank's BlockStates are

  // What a rank's arguments begin with. `of[r]`: where this rank reaches that memory of rank r. `multicast`: where it
  // reaches the first multicast_bytes() of all at once; null without.
  [[nodiscard]] Team team(std::uint32_t rank, std::span<const DeviceAddress> of, DeviceAddress multicast = {}) const {
    Team team{};
    team.rank = rank;
    team.ranks = ranks_;
    team.time_limit = static_cast<std::uint64_t>(options_.time_limit.count());
    team.states = (of[rank] + states_).as_pointer<BlockState>();
    team.blocks = options_.blocks;
    team.multicast_arrivals = multicast.as_pointer<Arrivals>();
    team.lines_per_block = options_.lines_per_block;
    team.staging_packs = staging_packs();
    for (std::uint32_t each = 0; each < ranks_; ++each) {
      team.arrivals[each] = of[each].as_pointer<Arrivals>();
      team.lines[each] = (of[each] + lines_).as_pointer<Line>();
      team.staging[each] = (of[each] + staging_).as_pointer<Pack>();
    }
    return team;
  }

 private:
  [[nodiscard]] std::uint64_t staging_packs() const noexcept { return options_.staging_bytes / sizeof(Pack); }

  CollectiveOptions options_;
  std::uint32_t ranks_;
  std::size_t states_;
  std::size_t lines_;
  std::size_t staging_;
};

}  // namespace cuvmm::gpu
