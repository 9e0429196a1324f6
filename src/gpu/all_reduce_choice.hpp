// Which way of all-reduce is fastest, and in which shape, without multicast.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuvmm/gpu/flagged_all_reduce.cuh"
#include "cuvmm/gpu/staged_all_reduce.cuh"
#include "gpu/collective_checks.hpp"
#include "gpu/collective_image.hpp"

namespace cuvmm::gpu {

struct AllReduceChoice {
  AllReduceWay way;
  CollectiveShape shape;
};

// From sizes measured on two H200s over NVLink (docs/collectives.md): flagged lines up to 256 KiB, one shot by writing
// up to 4 MiB, then two shots by writing. One shot sends everything to every other rank, so that with more ranks its
// limits are for what a rank sends; that is derived, not measured. Depends on what all ranks know alike, and on nothing
// else. The ways that it chooses may be in place. Two shots need outputs that all ranks reach; the others only the
// team's own memory.
[[nodiscard]] constexpr AllReduceChoice choose_all_reduce(const Team& team, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kibibyte = 1024;
  constexpr std::uint64_t mebibyte = 1024 * kibibyte;
  constexpr std::uint64_t most_flagged = 256 * kibibyte;
  constexpr std::uint64_t most_one_shot = 4 * mebibyte;
  const std::uint64_t sent = bytes * std::max(team.ranks - 1, 1U);
  const auto blocks_for = [&](std::uint64_t wanted) {
    return static_cast<unsigned>(std::clamp<std::uint64_t>(wanted, 1, std::max(team.blocks, 1U)));
  };
  if (sent <= most_flagged) {
    const std::uint64_t lines = (bytes + 7) / 8;
    const unsigned threads = bytes <= 64 * kibibyte ? 128 : bytes <= 128 * kibibyte ? 256 : 512;
    const CollectiveShape shape{blocks_for((lines + threads - 1) / threads), threads};
    if (lines <= flagged_capacity<std::uint64_t>(shape.blocks, team.lines_per_block, threads))
      return {AllReduceWay::flagged, shape};
  }
  const std::uint64_t packs = (bytes + sizeof(Pack) - 1) / sizeof(Pack);
  if (sent <= most_one_shot && packs <= team.staging_packs) {
    const unsigned threads = bytes <= mebibyte ? 128 : bytes <= 2 * mebibyte ? 256 : 512;
    return {AllReduceWay::staged_one_shot, {blocks_for((packs + 4 * threads - 1) / (4 * threads)), threads}};
  }
  return {AllReduceWay::staged_two_shot, {blocks_for((packs + 255) / 256), 256}};
}

}  // namespace cuvmm::gpu
