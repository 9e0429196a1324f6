// Collectives launched on emulated devices: bytes, graphs, ranks that are late or do not come, orders of every kind,
// faults, alias fences, and what is refused.
#include <array>
#include <cuvmm/cuvmm.hpp>
#include <functional>

#include "emulated_team.hpp"
#include "emulator/kernels/device_memory_policy.hpp"
#include "gpu/all_reduce_choice.hpp"
#include "recording_handler.hpp"

namespace cuvmm::gpu {
namespace {

using namespace test;
using driver::call;
using driver::EntryPoint;
using emulator::BlockCall;
using emulator::HostKernel;

constexpr CollectiveShape two_blocks{2, 32};

class CollectivesOnEmulatedDevices : public testing::Test {
 private:
  NoSwitches no_switches_{};
};
// What needs a multicast address, which a build may leave out.
class MultimemOnEmulatedDevices : public CollectivesOnEmulatedDevices {
 protected:
  void SetUp() override {
    if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  }
};

std::vector<AllReduceWay> ways_of(const EmulatedTeam& on) {
  std::vector<AllReduceWay> ways(std::begin(all_ways), std::end(all_ways));
  if (!on.team->has_multicast()) ways.resize(5);  // multimem's are the last
  return ways;
}

void expect_refused(const std::function<void()>& work, ErrorKind kind, const std::string& words) {
  try {
    work();
    ADD_FAILURE() << "accepted, instead of: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << words << " is not in: " << error.what();
  }
}

std::vector<std::uint8_t> bytes_of_rank(std::uint32_t rank, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::uint8_t>(i * 31 + i / 251 + std::size_t{rank} * 97);
  return bytes;
}

TEST_F(CollectivesOnEmulatedDevices, BroadcastMovesBytesOfAnyLengthAndAlignment) {
  const EmulatedTeam on(4);
  const DeviceTeam& team = *on.team;
  const auto inputs = team.allocate_for_all(2048), outputs = team.allocate_for_all(2048);
  constexpr std::uint32_t root = 2;
  for (const bool multicast : {false, true})
    for (const std::size_t bytes : {1, 3, 40, 1001})
      for (const std::size_t shift : {0, 7, 12}) {
        if (multicast && !team.has_multicast()) continue;
        const auto content = bytes_of_rank(root, bytes);
        on.write(root, inputs, shift, content);
        for (std::uint32_t rank = 0; rank < 4; ++rank) on.write(rank, outputs, 0, std::vector<std::uint8_t>(2048));
        for (std::uint32_t rank = 0; rank < 4; ++rank) {
          Broadcast call{};
          call.team = team.team(rank);
          call.root = root;
          call.bytes = bytes;
          call.input = (inputs.address(root) + shift).as_pointer<const std::uint8_t>();
          for (std::uint32_t of = 0; of < 4; ++of)
            call.outputs[of] = (outputs.address(of) + 16 + shift).as_pointer<std::uint8_t>();
          if (multicast) call.multicast_output = (outputs.multicast_address() + 16 + shift).as_pointer<std::uint8_t>();
          team.broadcast(call, two_blocks, multicast);
        }
        for (std::uint32_t rank = 0; rank < 4; ++rank) {
          ASSERT_EQ(team.missing(rank), 0U);
          auto expected = std::vector<std::uint8_t>(16 + shift);
          expected.insert(expected.end(), content.begin(), content.end());
          expected.resize(expected.size() + 16);
          ASSERT_EQ(on.read<std::uint8_t>(rank, outputs, 0, expected.size()), expected)
              << bytes << " bytes from " << shift << ", multicast " << multicast;
        }
      }
}

TEST_F(CollectivesOnEmulatedDevices, AllGatherPutsRanksBesideOneAnother) {
  const EmulatedTeam on(4);
  const DeviceTeam& team = *on.team;
  const auto inputs = team.allocate_for_all(512), outputs = team.allocate_for_all(2048);
  for (const bool multicast : {false, true})
    for (const std::size_t bytes : {1, 16, 77, 480}) {
      if (multicast && !team.has_multicast()) continue;
      std::vector<std::uint8_t> expected;
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        const auto mine = bytes_of_rank(rank, bytes);
        expected.insert(expected.end(), mine.begin(), mine.end());
        on.write(rank, inputs, 5, mine);
        on.write(rank, outputs, 0, std::vector<std::uint8_t>(2048));
      }
      expected.resize(expected.size() + 16);
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        AllGather call{};
        call.team = team.team(rank);
        call.bytes = bytes;
        for (std::uint32_t of = 0; of < 4; ++of) {
          call.inputs[of] = (inputs.address(of) + 5).as_pointer<const std::uint8_t>();
          call.outputs[of] = outputs.address(of).as_pointer<std::uint8_t>();
        }
        call.multicast_output = outputs.multicast_address().as_pointer<std::uint8_t>();
        team.all_gather(call, two_blocks, multicast);
      }
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        ASSERT_EQ(team.missing(rank), 0U);
        ASSERT_EQ(on.read<std::uint8_t>(rank, outputs, 0, expected.size()), expected) << bytes << " bytes";
      }
    }
}

// In place, so that each call doubles what the one before it made: one that comes too early or is left out shows.
TEST_F(CollectivesOnEmulatedDevices, GraphsAreReplayedBetweenOtherCalls) {
  const EmulatedTeam on(2);
  const DeviceTeam& team = *on.team;
  driver::Interface& api = on.driver.interface();
  constexpr std::size_t count = 101;
  const auto buffers = team.allocate_for_all(count * 4);
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    on.write(rank, buffers, 0, std::vector<std::uint32_t>(count, rank + 1));
  const auto one_rank = [&](std::uint32_t rank, AllReduceWay way, unsigned blocks) {
    team.all_reduce(way, on.all_reduce<std::uint32_t>(rank, buffers, 0, buffers, 0, count), {blocks, 64});
  };
  std::uint32_t in_graph = 0;
  std::vector<abi::CUgraphExec> graphs;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const OnRank here(team, rank);
    call<EntryPoint::cuStreamBeginCapture>(api, team.stream(rank), abi::CU_STREAM_CAPTURE_MODE_RELAXED);
    in_graph = 0;
    for (const AllReduceWay way : ways_of(on)) {
      if (!may_be_in_place(way)) continue;
      one_rank(rank, way, 1 + in_graph % 3);
      ++in_graph;
    }
    abi::CUgraph graph = nullptr;
    call<EntryPoint::cuStreamEndCapture>(api, team.stream(rank), &graph);
    abi::CUgraphExec ready = nullptr;
    call<EntryPoint::cuGraphInstantiateWithFlags>(api, &ready, graph, 0ULL);
    call<EntryPoint::cuGraphDestroy>(api, graph);
    graphs.push_back(ready);
  }
  constexpr std::uint32_t replays = 3;
  for (std::uint32_t replay = 0; replay < replays; ++replay)
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const OnRank here(team, rank);
      call<EntryPoint::cuGraphLaunch>(api, graphs[rank], team.stream(rank));
      one_rank(rank, AllReduceWay::staged_one_shot, 4);
    }
  const std::uint32_t expected = 3U << (replays * (in_graph + 1) - 1);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(team.missing(rank), 0U);
    EXPECT_EQ(on.read<std::uint32_t>(rank, buffers, 0, count), std::vector<std::uint32_t>(count, expected));
    const OnRank here(team, rank);
    call<EntryPoint::cuGraphExecDestroy>(api, graphs[rank]);
  }
}

DeviceTeamOptions impatient() {
  auto options = small_options();
  options.time_limit = std::chrono::milliseconds(2);
  return options;
}

// All blocks wait at the same time, for as long as one: the call ends, and so does every later one, having done
// nothing.
TEST_F(CollectivesOnEmulatedDevices, ARankThatDoesNotComeIsNamed) {
  for (const auto scheduler : {emulator::Scheduler::threaded, emulator::Scheduler::stepped})
    for (const bool multicast : {false, true}) {
      auto configuration = multicast_machine(4);
      configuration.scheduler = scheduler;
      const EmulatedTeam on(configuration, impatient());
      if (multicast && !on.team->has_multicast()) continue;
      for (const std::uint32_t rank : {0U, 1U}) on.team->barrier(rank, {4, 32}, multicast);
      for (const std::uint32_t rank : {0U, 1U}) EXPECT_EQ(on.team->missing(rank), 0b1100U);
      EXPECT_EQ(on.team->missing(3), 0U);
      const auto memory = on.team->allocate_for_all(64);
      on.write(0, memory, 0, std::vector<std::uint32_t>(4, 7));
      on.team->all_reduce(AllReduceWay::flagged, on.all_reduce<std::uint32_t>(0, memory, 0, memory, 0, 4), {1, 32});
      EXPECT_EQ(on.team->missing(0), 0b1100U);
      EXPECT_EQ(on.read<std::uint32_t>(0, memory, 0, 4), std::vector<std::uint32_t>(4, 7)) << "the team is lost";
    }
}
TEST_F(CollectivesOnEmulatedDevices, ALineThatDoesNotComeIsNamed) {
  const EmulatedTeam on(multicast_machine(2), impatient());
  const auto memory = on.team->allocate_for_all(64);
  on.team->all_reduce(AllReduceWay::flagged, on.all_reduce<float>(1, memory, 0, memory, 0, 16), {2, 32});
  EXPECT_EQ(on.team->missing(1), 0b01U);
}

// A barrier that could not give way would wait for the rank behind it for as long as the limit, and name it.
TEST_F(CollectivesOnEmulatedDevices, RanksTakeTurnsInAnyOrderOfSteps) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    auto configuration = multicast_machine(seed % 2 == 0 ? 3 : 2);
    configuration.scheduler = emulator::Scheduler::stepped;
    configuration.seed = seed;
    auto options = small_options();
    options.time_limit = std::chrono::seconds(20);
    const EmulatedTeam on(configuration, options);
    constexpr std::size_t count = 50;
    const auto inputs = on.team->allocate_for_all(count * 4), outputs = on.team->allocate_for_all(count * 4);
    std::uint32_t expected = 0;
    for (std::uint32_t rank = 0; rank < on.ranks(); ++rank) {
      on.write(rank, inputs, 0, std::vector<std::uint32_t>(count, 10 * rank + 1));
      expected += 10 * rank + 1;
    }
    for (const AllReduceWay way : ways_of(on)) {
      for (std::uint32_t rank = 0; rank < on.ranks(); ++rank)
        on.write(rank, outputs, 0, std::vector<std::uint32_t>(count));
      on.sum<std::uint32_t>(way, inputs, 0, outputs, 0, count, {3, 32});
      for (std::uint32_t rank = 0; rank < on.ranks(); ++rank) {
        ASSERT_EQ(on.team->missing(rank), 0U) << name_of(way) << ", seed " << seed;
        ASSERT_EQ(on.read<std::uint32_t>(rank, outputs, 0, count), std::vector<std::uint32_t>(count, expected));
      }
    }
  }
}

// All calls are given to the streams of one rank, and only then to those of the next: nobody waits in between.
TEST_F(CollectivesOnEmulatedDevices, ARankMayBeManyCallsAhead) {
  const EmulatedTeam on(2);
  constexpr std::size_t count = 20;
  const auto memory = on.team->allocate_for_all(count * 4);
  for (std::uint32_t rank = 0; rank < 2; ++rank) on.write(rank, memory, 0, std::vector<std::uint32_t>(count, 1));
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    for (int round = 0; round < 4; ++round)
      for (const AllReduceWay way : ways_of(on))
        if (may_be_in_place(way))
          on.team->all_reduce(way, on.all_reduce<std::uint32_t>(rank, memory, 0, memory, 0, count), two_blocks);
  const std::uint32_t calls = on.team->has_multicast() ? 20 : 16;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(on.team->missing(rank), 0U);
    EXPECT_EQ(on.read<std::uint32_t>(rank, memory, 0, count), std::vector<std::uint32_t>(count, 1U << calls));
  }
}

// What the rank's stream ends in.
abi::CUresult end_of(const EmulatedTeam& on, std::uint32_t rank) {
  const OnRank here(*on.team, rank);
  return on.machine.interface()->cuStreamSynchronize(on.team->stream(rank));
}

// The fault stays with the device that touched what it may not; the other rank gives it up.
TEST_F(CollectivesOnEmulatedDevices, MemoryWithoutRightsFaultsOnTheDeviceThatTouchesIt) {
  const cuvmm::test::RecordingHandler handler;  // of a device that is lost nothing can be given back
  for (const bool granted : {true, false}) {
    const EmulatedTeam on(multicast_machine(2), granted ? small_options() : impatient());
    const auto memory = on.team->allocate_for_all(4096);
    std::vector<AccessGrant> grants{{on.team->device(1).location()}};
    if (granted) grants.push_back({on.team->device(0).location()});
    auto own = MappedRange::create(
        on.driver, {.capacity = 4096, .memory = {.location = on.team->device(1).location()}, .grants = grants});
    own.append(4096);
    auto calls = std::array{on.all_reduce<float>(0, memory, 0, memory, 0, 64),
                            on.all_reduce<float>(1, memory, 0, memory, 0, 64)};
    for (auto& each : calls) each.outputs[1] = own.address().as_pointer<float>();
    for (const auto& each : calls) on.team->all_reduce(AllReduceWay::two_shot, each, {1, 32});
    EXPECT_EQ(end_of(on, 0), granted ? abi::CUDA_SUCCESS : abi::CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(end_of(on, 0), granted ? abi::CUDA_SUCCESS : abi::CUDA_ERROR_ILLEGAL_ADDRESS) << "it stays";
    EXPECT_EQ(end_of(on, 1), abi::CUDA_SUCCESS);
    EXPECT_EQ(on.team->missing(1), granted ? 0U : 0b01U);
  }
}

TEST_F(MultimemOnEmulatedDevices, AMulticastAddressThatIsTouchedPlainlyFaults) {
  const cuvmm::test::RecordingHandler handler;
  for (const bool plainly : {false, true}) {
    const EmulatedTeam on(multicast_machine(2), plainly ? impatient() : small_options());
    const auto memory = on.team->allocate_for_all(4096), outputs = on.team->allocate_for_all(4096);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      auto call = on.all_reduce<float>(rank, memory, 0, outputs, 0, 64);
      if (plainly && rank == 1) call.outputs[1] = outputs.multicast_address().as_pointer<float>();
      on.team->all_reduce(AllReduceWay::one_shot, call, {1, 32});
    }
    EXPECT_EQ(end_of(on, 1), plainly ? abi::CUDA_ERROR_ILLEGAL_ADDRESS : abi::CUDA_SUCCESS);
    EXPECT_EQ(end_of(on, 0), abi::CUDA_SUCCESS);
  }
}

// The barrier and a two-shot, over a policy that a test can take something away from.
template <class Policy>
std::vector<HostKernel> kernels_over() {
  HostKernel barrier;
  barrier.name = multimem_rank_barrier_kernel;
  barrier.argument_bytes = {sizeof(RankBarrier)};
  barrier.views = [](const emulator::KernelArguments&) { return std::vector<emulator::KernelView>{}; };
  barrier.run_block = [](const BlockCall& call) {
    multimem_rank_barrier(Policy(call.memory), HostBlock(call.block, call.blocks), call.arguments.get<RankBarrier>(0));
  };
  HostKernel two_shot = barrier;
  two_shot.name = all_reduce_kernel<float>(AllReduceWay::multimem_two_shot);
  two_shot.argument_bytes = {sizeof(AllReduce<float>)};
  two_shot.run_block = [](const BlockCall& call) {
    all_reduce_multimem_two_shot(Policy(call.memory), HostBlock(call.block, call.blocks),
                                 call.arguments.get<AllReduce<float>>(0));
  };
  return {barrier, two_shot};
}
struct WithoutFences : emulator::DeviceMemoryPolicy {
  using DeviceMemoryPolicy::DeviceMemoryPolicy;
  void alias_fence() const {}
};

// Step by step, so that one rank looks while the launch of another, which wrote, is running: it waits for the third.
TEST_F(MultimemOnEmulatedDevices, AFenceThatIsLeftOutIsTold) {
  const cuvmm::test::RecordingHandler handler;
  for (const bool fences : {true, false})
    for (const auto mode : {emulator::Mode::strict, emulator::Mode::faithful})
      for (const bool barrier : {true, false}) {
        std::vector<std::string> warnings;
        auto configuration = multicast_machine(3);
        configuration.mode = mode;
        configuration.scheduler = emulator::Scheduler::stepped;
        configuration.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
        configuration.kernels = fences ? kernels_over<emulator::DeviceMemoryPolicy>() : kernels_over<WithoutFences>();
        const EmulatedTeam on(configuration, impatient());
        const auto memory = on.team->allocate_for_all(256);
        for (std::uint32_t rank = 0; rank < 3; ++rank) {
          if (barrier)
            on.team->barrier(rank, {1, 32}, true);
          else
            on.team->all_reduce(AllReduceWay::multimem_two_shot, on.all_reduce<float>(rank, memory, 0, memory, 0, 8),
                                {1, 32});
        }
        const std::array ends{end_of(on, 0), end_of(on, 1), end_of(on, 2)};
        const bool fails = !fences && mode == emulator::Mode::strict;
        EXPECT_EQ(std::count(ends.begin(), ends.end(), abi::CUDA_ERROR_LAUNCH_FAILED) > 0, fails);
        const bool warned = !warnings.empty() && warnings.front().find("ALIAS-FENCE") != std::string::npos;
        EXPECT_EQ(warned, !fences && mode == emulator::Mode::faithful);
      }
}

TEST_F(MultimemOnEmulatedDevices, WithoutAMulticastAddressItIsRefusedBeforeTheDriverIsAsked) {
  for (const bool multicast : {false, true}) {
    auto options = small_options();
    options.multicast = multicast;
    const EmulatedTeam on(multicast_machine(2), options);
    EXPECT_EQ(on.team->has_multicast(), multicast);
    EXPECT_EQ(on.team->why_no_multicast().empty(), multicast);
    const auto memory = on.team->allocate_for_all(256);
    const auto before = on.counts->snapshot();
    const auto all = [&](std::uint32_t rank) {
      const auto reduce = on.all_reduce<float>(rank, memory, 0, memory, 0, 8);
      const std::vector<std::function<void()>> launches{
          [&] { on.team->all_reduce(AllReduceWay::multimem_two_shot, reduce, two_blocks); },
          [&] { on.team->launch(rank, all_reduce_kernel<float>(AllReduceWay::multimem_two_shot), reduce, 2, 32); },
          [&] { on.team->barrier(rank, two_blocks, true); }};
      for (const auto& launch : launches) {
        if (multicast)
          launch();
        else
          expect_refused(launch, ErrorKind::invalid_use, "DeviceTeamOptions::multicast");
      }
    };
    for (std::uint32_t rank = 0; rank < 2; ++rank) all(rank);
    if (!multicast) {
      EXPECT_EQ(on.counts->snapshot()[EntryPoint::cuLaunchKernel], before[EntryPoint::cuLaunchKernel]);
      EXPECT_EQ(on.counts->snapshot()[EntryPoint::cuModuleGetFunction], before[EntryPoint::cuModuleGetFunction]);
    }
    for (std::uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(on.team->missing(rank), 0U);
  }
}

TEST_F(CollectivesOnEmulatedDevices, ATeamWithoutMulticastSaysWhyAndWorks) {
  struct Without {
    emulator::Configuration configuration;
    const char* variable = nullptr;
    const char* words = "";
  };
  const Without all[] = {{cuvmm::test::machine("h200-580", 2), nullptr, ""},
                         {multicast_machine(2), "CUVMM_MULTICAST", "CUVMM_MULTICAST"},
                         {multicast_machine(2), "NCCL_NVLS_ENABLE", "NCCL_NVLS_ENABLE"}};
  for (const Without& one : all) {
    std::optional<EnvironmentVariable> off;
    if (one.variable != nullptr) off.emplace(one.variable, "0");
    const EmulatedTeam on(one.configuration);
    EXPECT_FALSE(on.team->has_multicast());
    EXPECT_FALSE(on.team->why_no_multicast().empty());
    if (CUVMM_RESOLVE_MULTICAST) {
      EXPECT_NE(on.team->why_no_multicast().find(one.words), std::string::npos) << on.team->why_no_multicast();
    }
    for (const driver::EntryPointInfo& each : driver::entry_points) {
      const bool counts = each.group == driver::EntryPointGroup::multicast && one.variable != nullptr;
      EXPECT_TRUE(!counts || on.counts->snapshot()[each.entry_point] == 0) << each.name;
    }
    const auto memory = on.team->allocate_for_all(256);
    EXPECT_EQ(memory.multicast_address(), DeviceAddress{});
    for (std::uint32_t rank = 0; rank < 2; ++rank) on.write(rank, memory, 0, std::vector<std::int32_t>(8, 5));
    on.sum<std::int32_t>(choose_all_reduce(on.team->team(0), 32).way, memory, 0, memory, 0, 8, two_blocks);
    on.team->synchronize();
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      EXPECT_EQ(on.read<std::int32_t>(rank, memory, 0, 8), std::vector<std::int32_t>(8, 10));
  }
}

TEST_F(MultimemOnEmulatedDevices, EachMemoryTakesASlotAndGivesItBack) {
  auto configuration = multicast_machine(2);
  configuration.multicast_slots = 2;
  const EmulatedTeam on(configuration);
  ASSERT_TRUE(on.team->has_multicast()) << on.team->why_no_multicast();
  {
    const auto memory = on.team->allocate_for_all(4096);
    expect_refused([&] { (void)on.team->allocate_for_all(4096); }, ErrorKind::out_of_multicast_slots, "");
  }
  EXPECT_NO_THROW((void)on.team->allocate_for_all(4096));
  configuration.multicast_slots = 0;
  const EmulatedTeam none(configuration);
  EXPECT_FALSE(none.team->has_multicast());
  EXPECT_FALSE(none.team->why_no_multicast().empty());
}

TEST_F(CollectivesOnEmulatedDevices, ChoosesAWayThatWasMeasured) {
  const EmulatedTeam on(2);
  for (std::uint64_t bytes = 16; bytes <= (1U << 30); bytes *= 4) {
    const AllReduceWay way = choose_all_reduce(on.team->team(0), bytes).way;
    EXPECT_EQ(name_of(way).find("multimem"), std::string_view::npos) << bytes;
  }
}

TEST_F(CollectivesOnEmulatedDevices, InPlaceIsRefusedWhereOthersStillRead) {
  const EmulatedTeam on(2);
  const auto memory = on.team->allocate_for_all(256), other = on.team->allocate_for_all(256);
  for (const AllReduceWay way : ways_of(on)) {
    if (may_be_in_place(way)) continue;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      expect_refused([&] { on.team->all_reduce(way, on.all_reduce<float>(rank, memory, 0, memory, 0, 8), two_blocks); },
                     ErrorKind::invalid_use, "must not overlap");
      on.team->all_reduce(way, on.all_reduce<float>(rank, memory, 0, other, 0, 8), two_blocks);
    }
    for (std::uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(on.team->missing(rank), 0U);
  }
}

// A team that ends gives everything back, also while a rank still waits for one that never comes.
TEST_F(CollectivesOnEmulatedDevices, ATeamLeavesNothing) {
  const cuvmm::test::EmulatedMachine machine(multicast_machine(2));
  {
    const std::array devices{DeviceOrdinal(0), DeviceOrdinal(1)};
    const DeviceTeam team(machine.driver(), devices, impatient());
    const auto memory = team.allocate_for_all(4096);
    team.barrier(1, {4, 32});
  }
  EXPECT_TRUE(machine.nothing_live());
}

}  // namespace
}  // namespace cuvmm::gpu
