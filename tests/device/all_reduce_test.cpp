// All-reduce in every way, type, number of ranks, length and alignment, run by threads as ranks and compared with sums
// of higher precision.
#include "cuvmm/gpu/all_reduce.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cuvmm/gpu/flagged_all_reduce.cuh"
#include "cuvmm/gpu/staged_all_reduce.cuh"
#include "host_team.hpp"

namespace cuvmm::gpu {
namespace {

using test::HostTeam;
using test::ThreadedBlock;

enum class Way { flagged, staged_one_shot, staged_two_shot, one_shot, two_shot, multimem_one_shot, multimem_two_shot };
constexpr std::array all_ways{Way::flagged,  Way::staged_one_shot,   Way::staged_two_shot,  Way::one_shot,
                              Way::two_shot, Way::multimem_one_shot, Way::multimem_two_shot};
constexpr bool may_be_in_place(Way way) {
  return way == Way::flagged || way == Way::staged_one_shot || way == Way::staged_two_shot || way == Way::two_shot ||
         way == Way::multimem_two_shot;
}

template <class T, class Memory, class Block>
void run(Way way, const Memory& memory, const Block& block, const AllReduce<T>& call) {
  switch (way) {
    case Way::flagged:
      return all_reduce_flagged(memory, block, call);
    case Way::staged_one_shot:
      return all_reduce_staged_one_shot(memory, block, call);
    case Way::staged_two_shot:
      return all_reduce_staged_two_shot(memory, block, call);
    case Way::one_shot:
      return all_reduce_one_shot(memory, block, call);
    case Way::two_shot:
      return all_reduce_two_shot(memory, block, call);
    case Way::multimem_one_shot:
      return all_reduce_multimem_one_shot(memory, block, call);
    case Way::multimem_two_shot:
      return all_reduce_multimem_two_shot(memory, block, call);
  }
}

// One call, and where its content lies in every rank's data.
struct Call {
  Way way;
  std::size_t count;
  std::size_t input;  // offsets in bytes
  std::size_t output;
  std::uint32_t blocks;
};

constexpr std::byte untouched{0xA5};
constexpr std::size_t margin = 32;  // bytes around each output that must stay as they are

template <class T>
AllReduce<T> arguments(const HostTeam& team, std::uint32_t rank, const Call& call) {
  AllReduce<T> arguments{};
  arguments.team = team.team(rank);
  arguments.count = call.count;
  for (std::uint32_t of = 0; of < team.ranks(); ++of) {
    arguments.inputs[of] = team.data<const T>(of, call.input);
    arguments.outputs[of] = team.data<T>(of, call.output);
  }
  arguments.multicast_input = team.multicast_data<const T>(call.input);
  arguments.multicast_output = team.multicast_data<T>(call.output);
  return arguments;
}

template <class T>
T random_value(std::mt19937& random) {
  if constexpr (std::is_same_v<T, float>)
    return static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-27F;
  else if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    return T::from(static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-27F);
  else
    return static_cast<T>(std::uint64_t{random()} << 32 | random());
}

// Whether `got` is the sum, as near as its precision allows. Integers are exact, modulo their size.
template <class T>
bool is_sum(T got, const std::vector<T>& values) {
  if constexpr (std::is_integral_v<T>) {
    std::uint64_t sum = 0;
    for (const T each : values) sum += static_cast<std::uint64_t>(each);
    return got == static_cast<T>(sum);
  } else {
    const auto wide = [](T value) {
      if constexpr (std::is_same_v<T, float>)
        return static_cast<long double>(value);
      else
        return static_cast<long double>(value.to_float());
    };
    long double sum = 0, magnitudes = 0;
    for (const T each : values) {
      sum += wide(each);
      magnitudes += std::fabs(wide(each));
    }
    const long double additions = magnitudes * 0x1p-24L * static_cast<long double>(values.size());
    const long double rounding = std::is_same_v<T, float>     ? 0
                                 : std::is_same_v<T, float16> ? std::fabs(sum) * 0x1p-11L + 0x1p-25L
                                                              : std::fabs(sum) * 0x1p-8L;
    return std::fabs(wide(got) - sum) <= additions + rounding * (1 + 0x1p-10L);
  }
}

// Lays calls one behind the other, does them all, in order, and compares.
template <class T>
class Calls {
 public:
  void add(Way way, std::size_t count, std::size_t input_offset, std::size_t output_offset, bool in_place,
           std::uint32_t blocks = 1) {
    const std::size_t input = take(count * sizeof(T), input_offset * sizeof(T));
    const std::size_t output = in_place ? input : take(count * sizeof(T), output_offset * sizeof(T));
    calls_.push_back({way, count, input, output, blocks});
  }
  [[nodiscard]] std::size_t bytes() const { return end_ + margin; }
  [[nodiscard]] const std::vector<Call>& calls() const { return calls_; }

  void prepare(const HostTeam& team, unsigned seed) {
    std::mt19937 random(seed);
    inputs_.assign(calls_.size(), std::vector<std::vector<T>>(team.ranks()));
    for (std::uint32_t rank = 0; rank < team.ranks(); ++rank) {
      std::fill_n(team.data<std::byte>(rank, 0), bytes(), untouched);
      for (std::size_t i = 0; i < calls_.size(); ++i) {
        auto& values = inputs_[i][rank];
        for (std::size_t n = 0; n < calls_[i].count; ++n) values.push_back(random_value<T>(random));
        std::copy(values.begin(), values.end(), team.data<T>(rank, calls_[i].input));
      }
    }
  }

  void expect_all_right(const HostTeam& team) const {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_right(team, calls_[i], inputs_[i]))
          << "call " << i << ", way " << static_cast<int>(calls_[i].way) << ", " << calls_[i].count
          << " values, input at " << calls_[i].input % 16 << ", output at " << calls_[i].output % 16
          << (calls_[i].input == calls_[i].output ? ", in place" : "");
    }
  }

 private:
  std::size_t take(std::size_t bytes, std::size_t misalignment) {
    const std::size_t begin = (end_ + margin + 15) / 16 * 16 + misalignment;
    end_ = begin + bytes;
    return begin;
  }

  static void expect_right(const HostTeam& team, const Call& call, const std::vector<std::vector<T>>& inputs) {
    for (std::uint32_t rank = 0; rank < team.ranks(); ++rank) {
      const T* const output = team.data<T>(rank, call.output);
      for (std::size_t n = 0; n < call.count; ++n) {
        std::vector<T> values;
        for (const auto& each : inputs) values.push_back(each[n]);
        ASSERT_TRUE(is_sum(output[n], values)) << "rank " << rank << ", value " << n;
      }
      // In one way or another all ranks add in the same order here.
      ASSERT_EQ(std::memcmp(output, team.data<T>(0, call.output), call.count * sizeof(T)), 0) << "rank " << rank;
      const auto* const before = team.data<std::byte>(rank, call.output) - 16;
      const auto* const behind = team.data<std::byte>(rank, call.output + call.count * sizeof(T));
      ASSERT_EQ(std::count(before, before + 16, untouched), 16) << "before the output of rank " << rank;
      ASSERT_EQ(std::count(behind, behind + 16, untouched), 16) << "behind the output of rank " << rank;
      if (call.input == call.output || call.count == 0) continue;
      ASSERT_EQ(std::memcmp(team.data<T>(rank, call.input), inputs[rank].data(), call.count * sizeof(T)), 0)
          << "the input of rank " << rank;
    }
  }

  std::vector<Call> calls_;
  std::vector<std::vector<std::vector<T>>> inputs_;  // of each call, of each rank
  std::size_t end_ = 0;
};

template <class T>
void run_all(const HostTeam& team, const Calls<T>& calls) {
  team.run([&](std::uint32_t rank) {
    for (const Call& each : calls.calls()) {
      const auto call = arguments<T>(team, rank, each);
      for (std::uint32_t block = 0; block < each.blocks; ++block)
        run(each.way, team.memory(), HostBlock(block, each.blocks), call);
    }
  });
}

template <class T>
class AllReduceTest : public testing::Test {};
using Types = testing::Types<float, float16, bfloat16, std::int32_t, std::uint32_t, std::uint64_t>;
class TypeNames {
 public:
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, float>           ? "f32"
           : std::is_same_v<T, float16>       ? "f16"
           : std::is_same_v<T, bfloat16>      ? "bf16"
           : std::is_same_v<T, std::int32_t>  ? "s32"
           : std::is_same_v<T, std::uint32_t> ? "u32"
                                              : "u64";
  }
};
TYPED_TEST_SUITE(AllReduceTest, Types, TypeNames);

TYPED_TEST(AllReduceTest, SumsAtEveryLengthAndAlignmentOfOneToEightRanks) {
  constexpr std::size_t in_a_pack = 16 / sizeof(TypeParam);
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    const std::size_t staging_packs = ranks % 2 == 0 ? 6 : 128;  // many rounds of two shots, or one
    Calls<TypeParam> calls;
    for (const Way way : all_ways) {
      for (const std::size_t count : {1, 2, 7, 9, 64, 203}) {
        if (way == Way::staged_one_shot && count > staged_capacity<TypeParam>(staging_packs)) continue;
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, in_a_pack - 1}) {
          calls.add(way, count, offset, offset, false);
          if (may_be_in_place(way)) calls.add(way, count, offset, offset, true);
        }
        calls.add(way, count, 1, 0, false);  // aligned differently
      }
    }
    HostTeam team(
        {.ranks = ranks, .lines_per_block = 256, .staging_packs = staging_packs, .data_bytes = calls.bytes()});
    calls.prepare(team, ranks);
    run_all(team, calls);
    ASSERT_NO_FATAL_FAILURE(calls.expect_all_right(team)) << ranks << " ranks";
  }
}

TYPED_TEST(AllReduceTest, NothingIsNothing) {
  Calls<TypeParam> calls;
  for (const Way way : all_ways) calls.add(way, 0, 0, 0, false);
  calls.add(Way::flagged, 5, 0, 0, false);
  HostTeam team({.ranks = 3, .data_bytes = calls.bytes()});
  calls.prepare(team, 1);
  run_all(team, calls);
  calls.expect_all_right(team);
  EXPECT_EQ(team.states(0)->line_epoch, 1U) << "nothing is no exchange";
}

// Calls of all ways and shapes in a row, as a program makes them: what one leaves behind the next must cope with.
TEST(AllReduceSequence, CallsOfAllWaysAndShapesFollowOneAnother) {
  for (const std::uint32_t start : {0U, 0xFFFFFFFFU - 40, 0x7FFFFFFFU - 40}) {
    std::mt19937 random(start);
    Calls<std::uint32_t> calls;
    for (int i = 0; i < 300; ++i) {
      const Way way = all_ways[random() % all_ways.size()];
      const std::uint32_t blocks = 1 + random() % 4;
      std::size_t count = random() % 5 == 0 ? random() % 100 : 1 + random() % 8;
      if (way == Way::staged_one_shot) count = std::min<std::size_t>(count, staged_capacity<std::uint32_t>(8));
      calls.add(way, count, random() % 4, random() % 4, may_be_in_place(way) && random() % 2 == 0, blocks);
    }
    // Two shots need inputs and outputs aligned alike on all ranks, not with one another.
    HostTeam team({.ranks = 3, .blocks = 4, .lines_per_block = 64, .data_bytes = calls.bytes()});
    team.start_at(start);
    calls.prepare(team, start);
    run_all(team, calls);
    ASSERT_NO_FATAL_FAILURE(calls.expect_all_right(team)) << "from epoch " << start;
  }
}

TEST(AllReduceBlocks, ThreadsOfABlockShareTheWork) {
  constexpr std::uint32_t ranks = 3, threads = 3, blocks = 2;
  Calls<bfloat16> calls;
  for (const Way way : all_ways)
    for (const std::size_t count : {1, 5, 100, 333}) calls.add(way, count, 3, 3, false, blocks);
  HostTeam team(
      {.ranks = ranks, .blocks = blocks, .lines_per_block = 64, .staging_packs = 64, .data_bytes = calls.bytes()});
  calls.prepare(team, 5);
  team.run([&](std::uint32_t rank) {
    ThreadedBlock::Shared shared(threads);
    std::vector<std::thread> of_block;
    for (std::uint32_t thread = 0; thread < threads; ++thread) {
      of_block.emplace_back([&, thread] {
        for (const Call& each : calls.calls()) {
          for (std::uint32_t block = 0; block < each.blocks; ++block) {
            run(each.way, team.memory(), ThreadedBlock(shared, thread, block, each.blocks),
                arguments<bfloat16>(team, rank, each));
            shared.meeting.arrive_and_wait();  // as a kernel ends before the next begins
          }
        }
      });
    }
    for (std::thread& each : of_block) each.join();
  });
  calls.expect_all_right(team);
}

// Its clock runs an hour a look.
class HastyMemory : public HostMemory {
 public:
  explicit HastyMemory(const HostMemory& memory) : HostMemory(memory) {}
  [[nodiscard]] std::uint64_t nanoseconds() const { return now_ += 3'600'000'000'000; }

 private:
  mutable std::uint64_t now_ = 0;
};

TEST(AllReduceFailure, ARankThatDoesNotComeIsNamedAndLaterCallsDoNothing) {
  for (const Way way : all_ways) {
    Calls<float> calls;
    calls.add(way, 40, 0, 0, false);
    HostTeam team({.ranks = 3, .data_bytes = calls.bytes(), .time_limit = 1000});
    calls.prepare(team, 9);
    const auto call = arguments<float>(team, 1, calls.calls().front());
    const HastyMemory memory(team.memory());
    run(way, memory, HostBlock(0, 1), call);
    const std::uint32_t missing = team.states(1)->missing;
    // Of flagged lines the first that is not there ends the call.
    EXPECT_EQ(missing, way == Way::flagged ? 0b001U : 0b101U) << static_cast<int>(way);
    const auto* const output = reinterpret_cast<const std::byte*>(call.outputs[1]);
    EXPECT_EQ(std::count(output, output + 160, untouched), 160) << static_cast<int>(way);

    // Now the others come, too late: whatever they do, this rank's further calls do nothing.
    for (std::uint32_t& each : team.arrivals(1)->of) each = 1000;
    const std::uint32_t next = team.states(1)->line_epoch + 1;
    std::fill_n(team.lines(1), team.lines_of_a_rank(), Line{0, next, 0, next});
    run(way, memory, HostBlock(0, 1), call);
    EXPECT_EQ(team.states(1)->missing, missing);
    EXPECT_EQ(std::count(output, output + 160, untouched), 160) << static_cast<int>(way);
  }
}

// Buffers take turns for a rank, not for a block: those that a call does without must not fall behind.
TEST(StagedAllReduce, AllBlocksAgreeOnWhoseTurnItIs) {
  Calls<float> calls;
  for (const Way way : {Way::staged_one_shot, Way::staged_two_shot, Way::one_shot})
    for (const std::uint32_t blocks : {1U, 3U, 2U, 4U}) calls.add(way, 20, 0, 0, false, blocks);
  HostTeam team({.ranks = 2, .blocks = 4, .data_bytes = calls.bytes()});
  calls.prepare(team, 4);
  run_all(team, calls);
  calls.expect_all_right(team);
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    for (std::uint32_t block = 0; block < 4; ++block) EXPECT_EQ(team.states(rank)[block].staging_epoch, 8U) << block;
}

// Lines that no exchange used while epochs ran over must not look like those of a new exchange.
TEST(FlaggedAllReduce, UnusedLinesAreRenewedWhenEpochsRunOver) {
  Calls<std::uint32_t> calls;
  for (int i = 0; i < 6; ++i) calls.add(Way::flagged, 2, 0, 0, false);  // one line of 64, epochs 2^32 - 3 to 2
  calls.add(Way::flagged, 100, 0, 0, false);                            // 50 lines, epoch 3
  HostTeam team({.ranks = 2, .lines_per_block = 64, .data_bytes = calls.bytes()});
  constexpr std::uint32_t coming = 3;
  team.start_at(0xFFFFFFFCU);
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    std::fill_n(team.lines(rank), team.lines_of_a_rank(), Line{77, coming, 77, coming});  // of 2^32 exchanges ago
  calls.prepare(team, 3);
  const auto run_some = [&](std::size_t begin, std::size_t end) {
    team.run([&](std::uint32_t rank) {
      for (std::size_t i = begin; i < end; ++i)
        run(Way::flagged, team.memory(), HostBlock(0, 1), arguments<std::uint32_t>(team, rank, calls.calls()[i]));
    });
  };
  run_some(0, 6);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < team.lines_of_a_rank(); ++i) {
      if (i / 64 % 2 == rank) continue;  // its own part is never looked at
      ASSERT_TRUE(team.lines(rank)[i].first_flag != coming && team.lines(rank)[i].second_flag != coming)
          << "line " << i << " of rank " << rank << " looks like new";
    }
  }
  run_some(6, 7);
  calls.expect_all_right(team);
}

TEST(FlaggedAllReduce, CapacityIsWhatFitsIntoWholeRows) {
  EXPECT_EQ(flagged_capacity<float>(1, 64, 64), 128U);
  EXPECT_EQ(flagged_capacity<float>(3, 100, 64), 384U);
  EXPECT_EQ(flagged_capacity<std::uint64_t>(1, 63, 64), 0U);
}

}  // namespace
}  // namespace cuvmm::gpu
