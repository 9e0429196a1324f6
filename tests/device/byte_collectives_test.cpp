// Broadcast, all-gather and the barrier between ranks: every length and alignment, run by threads as ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cuvmm/gpu/all_gather.cuh"
#include "cuvmm/gpu/broadcast.cuh"
#include "cuvmm/gpu/rank_barrier.cuh"
#include "host_team.hpp"

namespace cuvmm::gpu {
namespace {

using test::HostTeam;

constexpr std::uint8_t untouched = 0xA5;
constexpr std::size_t room = 2048;  // bytes of each input or output, what surrounds them included
constexpr std::size_t margin = 64;

struct Case {
  bool by_multicast;
  std::size_t bytes;
  std::size_t input_misalignment;
  std::size_t output_misalignment;
  bool in_place;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const bool by_multicast : {false, true})
    for (const std::size_t bytes : {0, 1, 3, 15, 16, 17, 100, 160})
      for (const auto& [input, output] : {std::pair{0, 0}, {5, 5}, {3, 7}, {1, 2}, {0, 15}})
        for (const bool in_place : {false, true})
          if (!in_place || input == output)
            cases.push_back(
                {by_multicast, bytes, static_cast<std::size_t>(input), static_cast<std::size_t>(output), in_place});
  return cases;
}

std::uint8_t content(std::size_t rank, std::size_t index, std::size_t which) {
  return static_cast<std::uint8_t>(rank * 61 + index * 7 + which * 13 + 1);
}

// Two places for each case in every rank's data.
std::size_t input_of(std::size_t which, const Case& each) {
  return 2 * which * room + margin + each.input_misalignment;
}
std::size_t output_of(std::size_t which, const Case& each) {
  return (2 * which + 1) * room + margin + each.output_misalignment;
}

void expect_bytes_and_nothing_around(const std::uint8_t* output, const std::vector<std::uint8_t>& expected) {
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), output));
  ASSERT_EQ(std::count(output - 16, output, untouched), 16);
  ASSERT_EQ(std::count(output + expected.size(), output + expected.size() + 16, untouched), 16);
}

TEST(Broadcast, EveryRankGetsTheRootsBytes) {
  const std::vector<Case> cases = all_cases();
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    const HostTeam team({.ranks = ranks, .data_bytes = 2 * room * cases.size()});
    const auto root_of = [&](std::size_t which) { return static_cast<std::uint32_t>(which % ranks); };
    const auto place_of = [&](std::size_t which, std::uint32_t rank) {
      // In place: where the output is, there the root has its input.
      return team.data<std::uint8_t>(
          rank, cases[which].in_place ? output_of(which, cases[which]) : input_of(which, cases[which]));
    };
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::fill_n(team.data<std::uint8_t>(rank, 0), 2 * room * cases.size(), untouched);
      for (std::size_t which = 0; which < cases.size(); ++which)
        for (std::size_t i = 0; i < cases[which].bytes; ++i) place_of(which, rank)[i] = content(rank, i, which);
    }
    team.run([&](std::uint32_t rank) {
      for (std::size_t which = 0; which < cases.size(); ++which) {
        Broadcast call{};
        call.team = team.team(rank);
        call.root = root_of(which);
        call.bytes = cases[which].bytes;
        call.input = place_of(which, call.root);
        for (std::uint32_t of = 0; of < ranks; ++of)
          call.outputs[of] = team.data<std::uint8_t>(of, output_of(which, cases[which]));
        call.multicast_output = team.multicast_data<std::uint8_t>(output_of(which, cases[which]));
        if (cases[which].by_multicast)
          multimem_broadcast(team.memory(), HostBlock(0, 1), call);
        else
          broadcast(team.memory(), HostBlock(0, 1), call);
      }
    });
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t which = 0; which < cases.size(); ++which) {
        std::vector<std::uint8_t> expected;
        for (std::size_t i = 0; i < cases[which].bytes; ++i) expected.push_back(content(root_of(which), i, which));
        ASSERT_NO_FATAL_FAILURE(
            expect_bytes_and_nothing_around(team.data<std::uint8_t>(rank, output_of(which, cases[which])), expected))
            << "case " << which << ", rank " << rank << " of " << ranks;
      }
    }
  }
}

TEST(AllGather, EveryRankGetsTheBytesOfAllInOrder) {
  const std::vector<Case> cases = all_cases();
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    const HostTeam team({.ranks = ranks, .data_bytes = 2 * room * cases.size()});
    const auto place_of = [&](std::size_t which, std::uint32_t rank) {
      const Case& each = cases[which];
      return team.data<std::uint8_t>(
          rank, each.in_place ? output_of(which, each) + rank * each.bytes : input_of(which, each));
    };
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::fill_n(team.data<std::uint8_t>(rank, 0), 2 * room * cases.size(), untouched);
      for (std::size_t which = 0; which < cases.size(); ++which)
        for (std::size_t i = 0; i < cases[which].bytes; ++i) place_of(which, rank)[i] = content(rank, i, which);
    }
    team.run([&](std::uint32_t rank) {
      for (std::size_t which = 0; which < cases.size(); ++which) {
        AllGather call{};
        call.team = team.team(rank);
        call.bytes = cases[which].bytes;
        for (std::uint32_t of = 0; of < ranks; ++of) {
          call.inputs[of] = place_of(which, of);
          call.outputs[of] = team.data<std::uint8_t>(of, output_of(which, cases[which]));
        }
        call.multicast_output = team.multicast_data<std::uint8_t>(output_of(which, cases[which]));
        if (cases[which].by_multicast)
          multimem_all_gather(team.memory(), HostBlock(0, 1), call);
        else
          all_gather(team.memory(), HostBlock(0, 1), call);
      }
    });
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t which = 0; which < cases.size(); ++which) {
        std::vector<std::uint8_t> expected;
        for (std::uint32_t of = 0; of < ranks; ++of)
          for (std::size_t i = 0; i < cases[which].bytes; ++i) expected.push_back(content(of, i, which));
        ASSERT_NO_FATAL_FAILURE(
            expect_bytes_and_nothing_around(team.data<std::uint8_t>(rank, output_of(which, cases[which])), expected))
            << "case " << which << ", rank " << rank << " of " << ranks;
      }
    }
  }
}

TEST(RankBarrier, WhatWasWrittenBeforeIsSeenBehind) {
  constexpr std::uint32_t ranks = 4, rounds = 200;
  HostTeam team({.ranks = ranks});
  team.start_at(0xFFFFFFFFU - 100);
  std::vector<std::uint32_t> written(ranks);
  std::vector<std::uint32_t> wrong(ranks);
  team.run([&](std::uint32_t rank) {
    const RankBarrier call{team.team(rank)};
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      written[rank] = round;
      rank_barrier(team.memory(), HostBlock(0, 1), call);
      for (const std::uint32_t each : written) wrong[rank] += each != round ? 1U : 0U;
      multimem_rank_barrier(team.memory(), HostBlock(0, 1), call);
    }
  });
  EXPECT_EQ(wrong, std::vector<std::uint32_t>(ranks));
}

// Its clock runs an hour a look.
class HastyMemory : public HostMemory {
 public:
  explicit HastyMemory(const HostMemory& memory) : HostMemory(memory) {}
  [[nodiscard]] std::uint64_t nanoseconds() const { return now_ += 3'600'000'000'000; }

 private:
  mutable std::uint64_t now_ = 0;
};

TEST(ByteCollectives, LeaveOutputsAloneIfARankDoesNotCome) {
  const HostTeam team({.ranks = 2, .time_limit = 1000});
  const HastyMemory memory(team.memory());
  auto* const output = team.data<std::uint8_t>(0, 1024);
  std::fill_n(output, 64, untouched);
  AllGather gather{};
  gather.team = team.team(0);
  gather.bytes = 16;
  gather.inputs[0] = team.data<std::uint8_t>(0, 0);
  gather.inputs[1] = team.data<std::uint8_t>(1, 0);
  gather.outputs[0] = output;
  all_gather(memory, HostBlock(0, 1), gather);
  EXPECT_EQ(team.states(0)->missing, 0b10U);
  Broadcast from_other{};
  from_other.team = gather.team;
  from_other.root = 1;
  from_other.bytes = 16;
  from_other.input = gather.inputs[1];
  from_other.outputs[0] = output;
  broadcast(memory, HostBlock(0, 1), from_other);
  EXPECT_EQ(std::count(output, output + 64, untouched), 64);
}

}  // namespace
}  // namespace cuvmm::gpu
