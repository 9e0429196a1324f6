#include "gpu/all_reduce_choice.hpp"

#include <gtest/gtest.h>

namespace cuvmm::gpu {
namespace {

Team team_of(std::uint32_t ranks) {
  Team team{};
  team.ranks = ranks;
  team.blocks = 132;
  team.lines_per_block = 2048;
  team.staging_packs = 2 * 1024 * 1024;
  return team;
}
constexpr std::uint64_t kib = 1024, mib = 1024 * 1024;

AllReduceWay way_of(const Team& team, std::uint64_t bytes) {
  return choose_all_reduce(team, bytes).way;
}

TEST(AllReduceChoice, GoesBySizeBetweenTwoRanks) {
  const Team team = team_of(2);
  for (const std::uint64_t bytes : {std::uint64_t{1}, kib, 256 * kib})
    EXPECT_EQ(way_of(team, bytes), AllReduceWay::flagged);
  for (const std::uint64_t bytes : {256 * kib + 1, mib, 4 * mib})
    EXPECT_EQ(way_of(team, bytes), AllReduceWay::staged_one_shot);
  for (const std::uint64_t bytes : {4 * mib + 1, 512 * mib, 1024 * mib})
    EXPECT_EQ(way_of(team, bytes), AllReduceWay::staged_two_shot);
}

TEST(AllReduceChoice, GoesByWhatARankSendsBetweenMore) {
  const Team team = team_of(8);
  EXPECT_EQ(way_of(team, 36 * kib), AllReduceWay::flagged);
  EXPECT_EQ(way_of(team, 38 * kib), AllReduceWay::staged_one_shot);
  EXPECT_EQ(way_of(team, 500 * kib), AllReduceWay::staged_one_shot);
  EXPECT_EQ(way_of(team, 700 * kib), AllReduceWay::staged_two_shot);
}

TEST(AllReduceChoice, TakesWhatThereIsRoomFor) {
  Team team = team_of(2);
  team.lines_per_block = 100;  // less than a row of threads
  EXPECT_EQ(way_of(team, kib), AllReduceWay::staged_one_shot);
  team.staging_packs = 63;
  EXPECT_EQ(way_of(team, kib), AllReduceWay::staged_two_shot);
  team.staging_packs = 64;
  EXPECT_EQ(way_of(team, kib), AllReduceWay::staged_one_shot);
}

TEST(AllReduceChoice, EveryShapeIsOneThatTheChecksAccept) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 8U, 32U}) {
    for (const std::uint32_t blocks : {1U, 20U, 132U}) {
      for (std::uint64_t bytes = 4; bytes <= 64 * mib; bytes = bytes * 3 / 2 / 4 * 4 + 4) {
        AllReduce<float> call{};
        call.team = team_of(ranks);
        call.team.blocks = blocks;
        call.count = bytes / sizeof(float);
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          call.outputs[rank] = reinterpret_cast<float*>(std::uintptr_t{1} << 40);
          call.inputs[rank] = call.outputs[rank];
        }
        const AllReduceChoice choice = choose_all_reduce(call.team, bytes);
        const auto refusal = refusal_of(call, choice.way, choice.shape);
        ASSERT_FALSE(refusal) << name_of(choice.way) << ", " << bytes << " bytes: " << refusal->rule;
      }
    }
  }
}

}  // namespace
}  // namespace cuvmm::gpu
