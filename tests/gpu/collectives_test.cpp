// Collectives between GPUs that reach each other's memory, without multicast. Where there is one GPU only, both ranks
// are on it, and the largest sizes are smaller.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <cuvmm/cuvmm.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "../device/reduced_values.hpp"
#include "driver/call.hpp"
#include "driver/counting_driver.hpp"
#include "gpu/device_team.hpp"

namespace cuvmm::gpu {
namespace {

using driver::call;
using driver::EntryPoint;
using test::value_at;

constexpr std::uint32_t ranks = 2;
constexpr std::uint8_t untouched = 0xA5;
constexpr AllReduceWay ways[] = {AllReduceWay::flagged, AllReduceWay::staged_one_shot, AllReduceWay::staged_two_shot,
                                 AllReduceWay::one_shot, AllReduceWay::two_shot};

constexpr bool may_be_in_place(AllReduceWay way) {
  return way != AllReduceWay::one_shot;
}

// One driver, one team, for all tests, through a decorator that counts what is called.
struct Bed {
  Bed()
      : counts(std::make_shared<driver::CountingDriver>(Driver::cuda().shared_interface())),
        driver(Driver::wrap(counts)),
        devices{DeviceOrdinal{0}, DeviceOrdinal{driver.device_count() > 1 ? 1 : 0}},
        team(driver, devices, {.blocks = most_blocks(), .staging_bytes = 4_MiB}) {}

  // Two grids on one GPU must both fit.
  [[nodiscard]] unsigned most_blocks() const { return devices[0] == devices[1] ? 32 : 132; }
  [[nodiscard]] std::size_t largest() const { return devices[0] == devices[1] ? 64_MiB : 1_GiB; }

  static Bed& get() {
    static Bed* const bed = new Bed;  // the driver may be gone when static objects are destroyed
    return *bed;
  }

  std::shared_ptr<driver::CountingDriver> counts;
  Driver driver;
  std::vector<DeviceOrdinal> devices;
  DeviceTeam team;
};

template <class Element>
void write(std::uint32_t rank, const MappedRange& range, std::size_t offset, const std::vector<Element>& content) {
  const OnRank here(Bed::get().team, rank);
  copy_to_device(range, offset, content);
}
template <class Element>
std::vector<Element> read(std::uint32_t rank, const MappedRange& range, std::size_t offset, std::size_t count) {
  const OnRank here(Bed::get().team, rank);
  std::vector<Element> content(count);
  copy_from_device(content, range, offset);
  return content;
}
void fill(const std::vector<MappedRange>& ranges, std::size_t bytes) {
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const OnRank here(Bed::get().team, rank);
    call<EntryPoint::cuMemsetD8>(Bed::get().driver.interface(), ranges[rank].address().value, untouched, bytes);
    CurrentContext(Bed::get().team.device(rank)).synchronize();
  }
}

// In double precision, where the sum of two values is exact, then rounded once.
template <class T>
T sum_of(T one, T other) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(one) + static_cast<std::uint64_t>(other));
  } else if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(static_cast<double>(one) + static_cast<double>(other));
  } else {
    return T::from(static_cast<float>(static_cast<double>(one.to_float()) + static_cast<double>(other.to_float())));
  }
}

template <class T>
std::vector<T> values(std::uint32_t rank, std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = value_at<T>(rank, i);
  return all;
}
template <class T>
std::vector<T> sums(std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = sum_of(value_at<T>(0, i), value_at<T>(1, i));
  return all;
}
template <class T>
bool are_same(const std::vector<T>& one, const std::vector<T>& other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(T)) == 0;
}

template <class T>
void all_reduce(AllReduceWay way, const std::vector<MappedRange>& inputs, std::size_t input,
                const std::vector<MappedRange>& outputs, std::size_t output, std::size_t count, unsigned blocks,
                unsigned threads) {
  const DeviceTeam& team = Bed::get().team;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    AllReduce<T> arguments{};
    arguments.team = team.team(rank);
    arguments.count = count;
    for (std::uint32_t of = 0; of < ranks; ++of) {
      arguments.inputs[of] = (inputs[of].address() + input).template as_pointer<const T>();
      arguments.outputs[of] = (outputs[of].address() + output).template as_pointer<T>();
    }
    team.launch(rank, all_reduce_kernel<T>(way), arguments, blocks, threads);
  }
}

template <class T>
class AllReduceOnGpus : public testing::Test {};
using Types = testing::Types<float, float16, bfloat16, std::int32_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(AllReduceOnGpus, Types);

TYPED_TEST(AllReduceOnGpus, SumsAtSmallSizesAtEveryAlignment) {
  using T = TypeParam;
  constexpr std::size_t room = 1_MiB;
  const DeviceTeam& team = Bed::get().team;
  const auto inputs = team.allocate(room), outputs = team.allocate(room);
  const unsigned blocks = 8, threads = 256;
  for (const AllReduceWay way : ways) {
    for (const std::size_t count : {1, 2, 3, 7, 16, 33, 1000, 4099, 20011}) {
      if (way == AllReduceWay::flagged && count > flagged_capacity<T>(blocks, team.options().lines_per_block, threads))
        continue;
      for (const std::size_t skipped : {std::size_t{0}, std::size_t{1}, 16 / sizeof(T) - 1}) {
        const bool in_place = may_be_in_place(way) && skipped == 1;
        const std::size_t offset = 64 + skipped * sizeof(T);
        fill(outputs, room);
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
          write(rank, in_place ? outputs[rank] : inputs[rank], offset, values<T>(rank, count));
        all_reduce<T>(way, in_place ? outputs : inputs, offset, outputs, offset, count, blocks, threads);
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(team.missing(rank), 0U);
          ASSERT_TRUE(are_same(read<T>(rank, outputs[rank], offset, count), sums<T>(count)))
              << name_of(way) << ", " << count << " values, " << skipped << " skipped, rank " << rank;
          for (const std::size_t around : {offset - 16, offset + count * sizeof(T)})
            ASSERT_EQ(read<std::uint8_t>(rank, outputs[rank], around, 16), std::vector<std::uint8_t>(16, untouched));
        }
      }
    }
  }
}

// Up to 1 GiB: a content of 32 MiB again and again, the first value of each repetition its own.
TYPED_TEST(AllReduceOnGpus, SumsUpToTheLargestSize) {
  using T = TypeParam;
  constexpr std::size_t repeated = 32_MiB;
  const DeviceTeam& team = Bed::get().team;
  const std::size_t largest = Bed::get().largest();
  const auto inputs = team.allocate(largest), outputs = team.allocate(largest);
  const auto first_of = [](std::uint32_t rank, std::size_t repetition) {
    return value_at<T>(rank, 1'000'003 * (repetition + 1));
  };
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::vector<T> content = values<T>(rank, repeated / sizeof(T));
    for (std::size_t at = 0; at < largest; at += repeated) {
      write(rank, inputs[rank], at, content);
      write(rank, inputs[rank], at, std::vector<T>{first_of(rank, at / repeated)});
    }
  }
  std::vector<T> expected = sums<T>(repeated / sizeof(T));
  for (const AllReduceWay way : {AllReduceWay::one_shot, AllReduceWay::two_shot, AllReduceWay::staged_two_shot}) {
    const std::size_t count = largest / sizeof(T) - (way == AllReduceWay::one_shot ? 0 : 1);
    fill(outputs, largest);
    all_reduce<T>(way, inputs, 0, outputs, 0, count, Bed::get().most_blocks(), 512);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(team.missing(rank), 0U);
      for (std::size_t at = 0; at < largest; at += repeated) {
        expected[0] = sum_of(first_of(0, at / repeated), first_of(1, at / repeated));
        const std::size_t here = std::min(repeated, count * sizeof(T) - at) / sizeof(T);
        const auto got = read<T>(rank, outputs[rank], at, here);
        ASSERT_EQ(std::memcmp(got.data(), expected.data(), here * sizeof(T)), 0)
            << name_of(way) << ", rank " << rank << ", from byte " << at;
      }
    }
  }
}

TEST(CollectivesOnGpus, BroadcastAndAllGatherMoveBytesOfAnyLengthAndAlignment) {
  constexpr std::size_t room = 64_MiB;
  const DeviceTeam& team = Bed::get().team;
  const auto inputs = team.allocate(room), outputs = team.allocate(2 * room);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{3}, std::size_t{4097}, 1_MiB + 5, room - 64}) {
    for (const std::size_t shift : {0, 7, 12}) {
      std::vector<std::vector<std::uint8_t>> contents(ranks);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t i = 0; i < bytes; ++i)
          contents[rank].push_back(static_cast<std::uint8_t>(i * 31 + i / 251 + rank * 97));
        write(rank, inputs[rank], shift, contents[rank]);
      }
      fill(outputs, 2 * bytes + 64);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        AllGather gather{};
        gather.team = team.team(rank);
        gather.bytes = bytes;
        for (std::uint32_t of = 0; of < ranks; ++of) {
          gather.inputs[of] = (inputs[of].address() + shift).as_pointer<const std::uint8_t>();
          gather.outputs[of] = (outputs[of].address() + 16).as_pointer<std::uint8_t>();
        }
        team.launch(rank, all_gather_kernel, gather, 16, 256);
      }
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(team.missing(rank), 0U);
        auto expected = contents[0];
        expected.insert(expected.end(), contents[1].begin(), contents[1].end());
        expected.resize(expected.size() + 16, untouched);
        ASSERT_TRUE(are_same(read<std::uint8_t>(rank, outputs[rank], 16, expected.size()), expected))
            << bytes << " bytes from " << shift;
      }
      fill(outputs, bytes + 64);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        Broadcast from_last{};
        from_last.team = team.team(rank);
        from_last.root = 1;
        from_last.bytes = bytes;
        from_last.input = (inputs[1].address() + shift).as_pointer<const std::uint8_t>();
        from_last.outputs[rank] = (outputs[rank].address() + 16).as_pointer<std::uint8_t>();
        team.launch(rank, broadcast_kernel, from_last, 16, 256);
      }
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(team.missing(rank), 0U);
        auto expected = contents[1];
        expected.resize(bytes + 16, untouched);
        ASSERT_TRUE(are_same(read<std::uint8_t>(rank, outputs[rank], 16, expected.size()), expected));
      }
    }
  }
}

// In place, so that each call doubles what the first one made: one that comes too early or is left out shows.
TEST(CollectivesOnGpus, GraphsAreReplayedBetweenOtherCalls) {
  constexpr std::size_t count = 10'007;
  const DeviceTeam& team = Bed::get().team;
  driver::Interface& api = Bed::get().driver.interface();
  const auto buffers = team.allocate(1_MiB);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) write(rank, buffers[rank], 0, values<std::uint32_t>(rank, count));
  const auto one_rank = [&](std::uint32_t rank, AllReduceWay way) {
    AllReduce<std::uint32_t> arguments{};
    arguments.team = team.team(rank);
    arguments.count = count;
    for (std::uint32_t of = 0; of < ranks; ++of) {
      arguments.inputs[of] = buffers[of].address().as_pointer<const std::uint32_t>();
      arguments.outputs[of] = buffers[of].address().as_pointer<std::uint32_t>();
    }
    team.launch(rank, all_reduce_kernel<std::uint32_t>(way), arguments, way == AllReduceWay::two_shot ? 3 : 8, 128);
  };
  std::vector<abi::CUgraphExec> graphs;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const OnRank here(team, rank);
    call<EntryPoint::cuStreamBeginCapture>(api, team.stream(rank), abi::CU_STREAM_CAPTURE_MODE_RELAXED);
    for (const AllReduceWay way : ways)
      if (may_be_in_place(way)) one_rank(rank, way);
    abi::CUgraph graph = nullptr;
    call<EntryPoint::cuStreamEndCapture>(api, team.stream(rank), &graph);
    abi::CUgraphExec ready = nullptr;
    call<EntryPoint::cuGraphInstantiateWithFlags>(api, &ready, graph, 0ULL);
    call<EntryPoint::cuGraphDestroy>(api, graph);
    graphs.push_back(ready);
  }
  constexpr int replays = 5;
  for (int replay = 0; replay < replays; ++replay) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const OnRank here(team, rank);
      call<EntryPoint::cuGraphLaunch>(api, graphs[rank], team.stream(rank));
      one_rank(rank, AllReduceWay::staged_one_shot);
    }
  }
  std::vector<std::uint32_t> expected = sums<std::uint32_t>(count);
  for (std::uint32_t& each : expected) each <<= replays * 5 - 1;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(team.missing(rank), 0U);
    EXPECT_TRUE(are_same(read<std::uint32_t>(rank, buffers[rank], 0, count), expected)) << "rank " << rank;
    const OnRank here(team, rank);
    call<EntryPoint::cuGraphExecDestroy>(api, graphs[rank]);
  }
}

TEST(CollectivesOnGpus, ARankThatDoesNotComeIsNamed) {
  const Bed& bed = Bed::get();
  for (const std::string& kernel :
       {std::string(rank_barrier_kernel), all_reduce_kernel<float>(AllReduceWay::flagged)}) {
    const DeviceTeam team(bed.driver, bed.devices,
                          {.blocks = 4, .staging_bytes = 1_MiB, .time_limit = std::chrono::milliseconds(20)});
    const auto buffers = team.allocate(1_MiB);
    AllReduce<float> arguments{};  // begins with what the barrier takes
    arguments.team = team.team(0);
    arguments.count = 100;
    arguments.inputs[0] = buffers[0].address().as_pointer<const float>();
    arguments.outputs[0] = buffers[0].address().as_pointer<float>();
    if (kernel == rank_barrier_kernel)
      team.launch(0, kernel, RankBarrier{arguments.team}, 4, 128);
    else
      team.launch(0, kernel, arguments, 4, 128);
    EXPECT_EQ(team.missing(0), 0b10U) << kernel;
    EXPECT_EQ(team.missing(1), 0U) << kernel;
  }
}

TEST(CollectivesOnGpus, NotOneMulticastCallIsMade) {
  const DeviceTeam& team = Bed::get().team;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    team.launch(rank, rank_barrier_kernel, RankBarrier{team.team(rank)}, 1, 32);
  team.synchronize();
  const driver::CallCounts counts = Bed::get().counts->snapshot();
  EXPECT_GT(counts[EntryPoint::cuLaunchKernel], 0U);
  for (const driver::EntryPointInfo& each : driver::entry_points)
    EXPECT_TRUE(each.group != driver::EntryPointGroup::multicast || counts[each.entry_point] == 0) << each.name;
}

}  // namespace
}  // namespace cuvmm::gpu
