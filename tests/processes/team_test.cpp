// Ranks that are processes: of one node, and of two nodes of an emulated machine.
#include <cstdlib>

#include "../no_switches.hpp"
#include "../team_multimem.hpp"
#include "emulator/configuration.hpp"
#include "team_on_machine.hpp"

namespace cuvmm::team {
namespace {

using namespace tests;

std::vector<int> nothing_wrong_with(int size) {
  return std::vector<int>(static_cast<std::size_t>(size), 0);
}

// Makes and uses symmetric memory as a rank of a team. Answers 0 if all was as it should be.
int use_memory(const std::shared_ptr<Team>& team, const SymmetricMemoryOptions& options = {.capacity = 8_MiB}) {
  auto memory = SymmetricMemory::create(team, 1_MiB, options, soon());
  if (!all_exchange(memory, 1_MiB - 100)) return 1;
  if (memory.grow(5_MiB, soon()) != 1_MiB) return 2;
  if (!all_exchange(memory, 6_MiB - 100)) return 3;
  memory.close(soon());
  return 0;
}

TEST(TeamOfProcesses, ReachesTheMemoryOfAllRanks) {
  for (const int size : {1, 2, 4, 8}) {
    const Machine machine("memory=2GiB,devices=8");
    const auto answers = run_processes(size, [&](int rank) {
      use_machine(machine.settings());
      const Driver driver = Driver::emulated();
      const Device device = driver.device(DeviceOrdinal(rank));
      const CurrentContext context(device);
      return use_memory(Team::assemble(SocketBootstrap::join({rank, size, machine.path()}, soon()), device, soon()));
    });
    EXPECT_EQ(answers, nothing_wrong_with(size));
  }
}

// Kernels of several processes, each on an emulated device, that wait for one another.
TEST(TeamOfProcesses, SumsUpWhatAllRanksHave) {
  const test::NoSwitches no_switches{};
  const Machine machine("profile=h200-multicast,memory=2GiB,devices=4");
  const auto answers = run_processes(4, [&](int rank) {
    use_machine(machine.settings());
    const Driver driver = Driver::emulated();
    const Device device = driver.device(DeviceOrdinal(rank));
    const CurrentContext context(device);
    const auto ranks = Team::assemble(SocketBootstrap::join({rank, 4, machine.path()}, soon()), device, soon());
    auto memory = SymmetricMemory::create(ranks, 1_MiB, {.multicast = Multicast::if_possible}, soon());
    auto collectives = Collectives::create(ranks,
                                           {.blocks = 4,
                                            .staging_bytes = 64 << 10,
                                            .time_limit = std::chrono::seconds(120),
                                            .multicast = Multicast::if_possible},
                                           soon());
    std::vector<std::uint32_t> values(5000, static_cast<std::uint32_t>(rank) + 1);
    copy_to_device(memory.range(), memory.offset_in_range(rank), values);
    for (const auto way : {gpu::AllReduceWay::flagged, gpu::AllReduceWay::staged_one_shot,
                           gpu::AllReduceWay::staged_two_shot, gpu::AllReduceWay::two_shot})
      collectives.all_reduce<std::uint32_t>(nullptr, {memory, 0}, {memory, 0}, values.size(),
                                            AllReducePlan{way, 4, 128});
    if (collectives.can_meet_by_multicast() != (CUVMM_RESOLVE_MULTICAST != 0)) return 3;
    collectives.all_reduce<std::uint32_t>(
        nullptr, {memory, 0}, {memory, 0}, values.size(),
        AllReducePlan{CUVMM_RESOLVE_MULTICAST ? gpu::AllReduceWay::multimem_two_shot : gpu::AllReduceWay::two_shot, 4,
                      128});
    if (collectives.missing() != 0) return 1;
    copy_from_device(values, memory.range(), memory.offset_in_range(rank));
    if (values != std::vector<std::uint32_t>(5000, 10 * 4 * 4 * 4 * 4)) return 2;
    collectives.close(soon());
    memory.close(soon());
    return 0;
  });
  EXPECT_EQ(answers, nothing_wrong_with(4));
}

TEST(TeamOfProcesses, FindsTogetherByTheVariablesOfTorchrun) {
  const Machine machine("memory=2GiB");
  const auto answers = run_processes(3, [&](int rank) {
    use_machine(machine.settings());
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", "3", 1);
    ::setenv("LOCAL_WORLD_SIZE", "3", 1);
    ::setenv("MASTER_ADDR", machine.path().c_str(), 1);  // a name that no other test uses
    ::setenv("MASTER_PORT", "29500", 1);
    const Driver driver = Driver::emulated();
    const Device device = driver.device(DeviceOrdinal(0));  // one for all
    const CurrentContext context(device);
    return use_memory(Team::assemble(SocketBootstrap::join(SocketTeam::from_environment(), soon()), device, soon()));
  });
  EXPECT_EQ(answers, nothing_wrong_with(3));
}

// The same through a multicast address. Its kernels are this process's.
Driver with_multimem_kernels() {
  auto configuration = emulator::Configuration::of_program();
  configuration.kernels = test::multimem_kernels();
  return Driver::emulated(configuration);
}

int use_multicast(const std::shared_ptr<Team>& team) {
  auto memory = SymmetricMemory::create(team, 1_MiB, {.capacity = 8_MiB, .multicast = Multicast::required}, soon());
  if (!test::all_found_by_multimem(memory, 1_MiB - 64, 1, soon())) return 1;
  if (memory.grow(5_MiB, soon()) != 1_MiB || memory.multicast_size() != 6_MiB) return 2;
  if (!test::all_found_by_multimem(memory, 6_MiB - 64, 2, soon())) return 3;
  if (!all_exchange(memory, 6_MiB - 100)) return 4;
  memory.close(soon());
  return 0;
}

// In an environment that turns nothing off, of a build that has it.
class MulticastTeamOfProcesses : public testing::Test {
 protected:
  void SetUp() override {
    if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  }
  const test::NoSwitches no_switches_{};
};

TEST_F(MulticastTeamOfProcesses, ReachesTheMemoryOfAllRanksAtOnce) {
  for (const int size : {1, 2, 4, 8}) {
    const Machine machine("profile=h200-multicast,memory=2GiB,devices=8,multicast-slots=1");
    const auto answers = run_processes(size, [&](int rank) {
      use_machine(machine.settings());
      const Driver driver = with_multimem_kernels();
      const Device device = driver.device(DeviceOrdinal(rank));
      const CurrentContext context(device);
      const auto team = Team::assemble(SocketBootstrap::join({rank, size, machine.path()}, soon()), device, soon());
      for (int round = 0; round < 3; ++round)
        if (const int answer = use_multicast(team); answer != 0) return answer;
      return 0;
    });
    EXPECT_EQ(answers, nothing_wrong_with(size));
  }
}

TEST_F(MulticastTeamOfProcesses, C12_WaitsForARankWhoseSystemIsNotReady) {
  const Machine machine("profile=h200-multicast,memory=2GiB,devices=3");
  const auto answers = run_processes(3, [&](int rank) {
    use_machine(machine.settings() + (rank == 2 ? ",multicast-bind-fails=2:not-ready:2" : ""));
    const Driver driver = with_multimem_kernels();
    const Device device = driver.device(DeviceOrdinal(rank));
    const CurrentContext context(device);
    return use_multicast(Team::assemble(SocketBootstrap::join({rank, 3, machine.path()}, soon()), device, soon()));
  });
  EXPECT_EQ(answers, nothing_wrong_with(3));
}

TEST_F(MulticastTeamOfProcesses, C11_GoesOnWithoutWhereARankCannotBind) {
  const Machine machine("profile=h200-multicast,memory=2GiB,devices=4");
  const auto answers = run_processes(4, [&](int rank) {
    use_machine(machine.settings() + (rank == 3 ? ",multicast-bind-fails=3:illegal-state" : ""));
    const Driver driver = with_multimem_kernels();
    const Device device = driver.device(DeviceOrdinal(rank));
    const CurrentContext context(device);
    const auto team = Team::assemble(SocketBootstrap::join({rank, 4, machine.path()}, soon()), device, soon());
    auto memory = SymmetricMemory::create(team, 1_MiB, {.multicast = Multicast::if_possible}, soon());
    if (memory.multicast_address() || !memory.why_no_multicast()) return 10;
    if (memory.why_no_multicast()->message().find("rank 3 (process") == std::string::npos) return 11;
    if (!all_exchange(memory, 100)) return 12;
    memory.close(soon());
    return 0;
  });
  EXPECT_EQ(answers, nothing_wrong_with(4));
}

// One switch in one rank's environment.
TEST_F(MulticastTeamOfProcesses, ASwitchOfOneRankIsObeyedByAll) {
  const Machine machine("profile=h200-multicast,memory=2GiB");
  const auto answers = run_processes(2, [&](int rank) {
    use_machine(machine.settings() + ",devices=2");
    if (rank == 1) ::setenv("NCCL_NVLS_ENABLE", "0", 1);
    const Driver driver = with_multimem_kernels();
    const Device device = driver.device(DeviceOrdinal(rank));
    const CurrentContext context(device);
    const auto team = Team::assemble(SocketBootstrap::join({rank, 2, machine.path()}, soon()), device, soon());
    const auto refused = SymmetricMemory::try_create(team, 1_MiB, {.multicast = Multicast::required}, soon());
    if (refused || refused.failure().kind != ErrorKind::not_supported) return 10;
    if (refused.failure().message().find("NCCL_NVLS_ENABLE=0") == std::string::npos) return 11;
    auto memory = SymmetricMemory::create(team, 1_MiB, {.multicast = Multicast::if_possible}, soon());
    if (memory.multicast_address()) return 12;
    memory.close(soon());
    return 0;
  });
  EXPECT_EQ(answers, nothing_wrong_with(2));
}

// Two ranks on each of two nodes.
class TeamOfNodes : public testing::Test {
 protected:
  static std::vector<int> run(const Machine& machine, const std::function<int(const std::shared_ptr<Team>&)>& work) {
    return run_processes(4, [&](int rank) {
      use_machine(machine.settings() + ",node=" + std::to_string(rank / 2));
      const Driver driver = Driver::emulated();
      const Device device = driver.device(DeviceOrdinal(rank % 2));
      const CurrentContext context(device);
      return work(Team::assemble(SocketBootstrap::join({rank, 4, machine.path()}, soon()), device, soon()));
    });
  }
  // Whether it was refused with that kind, and says all that.
  static bool refused(const Result<SymmetricMemory>& memory, ErrorKind kind, const std::vector<std::string>& words) {
    if (memory) return false;
    const std::string message = memory.failure().message();
    for (const std::string& each : words)
      if (message.find(each) == std::string::npos) {
        std::fprintf(stderr, "'%s' is not in: %s\n", each.c_str(), message.c_str());
        return false;
      }
    return memory.failure().kind == kind;
  }
};

TEST_F(TeamOfNodes, ReachesOtherNodesByFabricHandlesAndItsOwnByDescriptors) {
  const Machine machine("profile=gb200,memory=2GiB,nodes=2,devices=2");
  const auto answers = run(machine, [](const std::shared_ptr<Team>& team) {
    if (team->is_on_one_node()) return 10;
    for (int rank = 0; rank < 4; ++rank) {
      const bool is_mate = rank / 2 == team->rank() / 2;
      if (team->members()[static_cast<std::size_t>(rank)].ordinal.has_value() != is_mate) return 11;
    }
    return use_memory(team);
  });
  EXPECT_EQ(answers, nothing_wrong_with(4));
}

TEST_F(TeamOfNodes, C19_DescriptorsAreRefusedBetweenNodesAndBothAreNamed) {
  const Machine machine("profile=gb200,memory=2GiB,nodes=2,devices=2");
  const auto answers = run(machine, [](const std::shared_ptr<Team>& team) {
    const auto memory =
        SymmetricMemory::try_create(team, 1_MiB, {.handle_types = HandleType::posix_file_descriptor}, soon());
    if (!refused(memory, ErrorKind::not_supported, {"refused by 4 of 4", "Rank 0", "rank 2", "node 0", "node 1"}))
      return 10;
    return use_memory(team);
  });
  EXPECT_EQ(answers, nothing_wrong_with(4));
}

// The driver announces fabric handles, and there is no channel: what is left are descriptors, which stay in their node.
TEST_F(TeamOfNodes, C28_WithoutAChannelTheFallbackReachesTheOwnNodeOnly) {
  const Machine machine("memory=2GiB,nodes=2,devices=2");
  const auto answers = run(machine, [](const std::shared_ptr<Team>& team) {
    const auto memory = SymmetricMemory::try_create(team, 1_MiB, {}, soon());
    return refused(memory, ErrorKind::not_supported, {"refused by 4 of 4", "node 0", "node 1", "HandleType::fabric"})
               ? 0
               : 10;
  });
  EXPECT_EQ(answers, nothing_wrong_with(4));
  const auto within = run_processes(2, [&](int rank) {
    use_machine(machine.settings() + ",node=1");
    const Driver driver = Driver::emulated();
    const Device device = driver.device(DeviceOrdinal(rank));
    const CurrentContext context(device);
    const auto team = Team::assemble(SocketBootstrap::join({rank, 2, machine.path()}, soon()), device, soon());
    return use_memory(team,
                      {.capacity = 8_MiB, .handle_types = HandleType::posix_file_descriptor | HandleType::fabric});
  });
  EXPECT_EQ(within, nothing_wrong_with(2));
}

TEST_F(TeamOfNodes, C19_AnotherMachineIsRefusedWhateverTheHandles) {
  const Machine machine("profile=gb200,memory=2GiB");
  const Machine other("profile=gb200,memory=2GiB");
  const auto answers = run_processes(2, [&](int rank) {
    use_machine((rank == 0 ? machine : other).settings());
    const Driver driver = Driver::emulated();
    const Device device = driver.device(DeviceOrdinal(0));
    const CurrentContext context(device);
    const auto team = Team::assemble(SocketBootstrap::join({rank, 2, machine.path()}, soon()), device, soon());
    const auto memory = SymmetricMemory::try_create(team, 1_MiB, {}, soon());
    return refused(memory, ErrorKind::not_supported, {"Rank 0", "rank 1", "emulated machine"}) ? 0 : 10;
  });
  EXPECT_EQ(answers, nothing_wrong_with(2));
}

// Its object goes to the own node as a descriptor, and to the other one as a fabric handle.
TEST_F(TeamOfNodes, HasOneMulticastAddressForAllNodes) {
  if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  const test::NoSwitches no_switches{};
  const Machine machine("profile=h200-multicast,memory=2GiB,nodes=2,devices=2,imex-channels=1");
  const auto answers = run_processes(4, [&](int rank) {
    use_machine(machine.settings() + ",node=" + std::to_string(rank / 2));
    const Driver driver = with_multimem_kernels();
    const Device device = driver.device(DeviceOrdinal(rank % 2));
    const CurrentContext context(device);
    return use_multicast(Team::assemble(SocketBootstrap::join({rank, 4, machine.path()}, soon()), device, soon()));
  });
  EXPECT_EQ(answers, nothing_wrong_with(4));
}

}  // namespace
}  // namespace cuvmm::team
