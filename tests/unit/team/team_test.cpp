#include "cuvmm/team/team.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "sharing/open_descriptors.hpp"
#include "team/node_connections.hpp"
#include "team_machine.hpp"

namespace cuvmm::team {
namespace {

using namespace test;
using sharing::HandleOfMemory;

SharedPhysicalMemory memory_on(const Device& device, HandleTypes types = HandleType::posix_file_descriptor) {
  return SharedPhysicalMemory(
      PhysicalMemory::create(device.driver(), {.location = device.location(), .handle_types = types}, 2_MiB));
}

TEST(Team, KnowsItsMembers) {
  TeamMachine machine(3);
  machine.run([&](const auto& team) {
    ASSERT_EQ(team->members().size(), 3u);
    EXPECT_TRUE(team->is_on_one_node());
    for (int rank = 0; rank < 3; ++rank) {
      const Member& member = team->members()[static_cast<std::size_t>(rank)];
      EXPECT_EQ(member.device, machine.device(rank).uuid());
      EXPECT_EQ(member.ordinal, DeviceOrdinal(rank));
      EXPECT_EQ(member.process, static_cast<std::uint32_t>(::getpid()));
    }
  });
}

TEST(Team, RefusesToBeOfNoBootstrap) {
  TeamMachine machine(1);
  expect_failure(Team::try_assemble(nullptr, machine.device(0), soon()), ErrorKind::invalid_use, {"bootstrap"});
}

TEST(Team, ExchangesAHandleOfEachRanksMemory) {
  TeamMachine machine(5);
  const std::size_t descriptors = cuvmm::test::open_descriptors();
  machine.run([](const auto& team) {
    for (int round = 0; round < 5; ++round) {
      const auto handles = team->try_exchange_handles("round", memory_on(team->device()), soon()).value();
      for (int rank = 0; rank < team->size(); ++rank) {
        const auto& handle = handles[static_cast<std::size_t>(rank)];
        ASSERT_EQ(handle.has_value(), rank != team->rank());
        if (!handle) continue;
        EXPECT_EQ(handle->bytes, 2_MiB);
        const auto memory = team->try_import(rank, *handle).value();
        EXPECT_EQ(memory.properties().location, Location::device(DeviceOrdinal(rank)));
      }
    }
  });
  EXPECT_TRUE(machine.nothing_live());
  EXPECT_EQ(cuvmm::test::open_descriptors(), descriptors);
}

TEST(Team, GivesTheHandleOfOneRankToAllOthers) {
  TeamMachine machine(4);
  machine.run([](const auto& team) {
    for (int root = 0; root < 4; ++root) {
      const auto mine = team->rank() == root ? memory_on(team->device()) : SharedPhysicalMemory();
      const auto handle = team->try_broadcast_handle("one", root, mine, soon()).value();
      EXPECT_EQ(handle.has_value(), team->rank() != root);
      if (handle) {
        EXPECT_EQ(team->try_import(root, *handle).value().properties().location, Location::device(DeviceOrdinal(root)));
        EXPECT_FALSE(team->try_import(4, *handle));
        EXPECT_FALSE(team->try_import(-1, *handle));
      }
    }
    EXPECT_FALSE(team->try_broadcast_handle("one", 4, SharedPhysicalMemory(), soon()));
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST(Team, ARankWithoutMemoryIsTheVerdictOfAll) {
  TeamMachine machine(3);
  machine.run([](const auto& team) {
    Failure none;
    none.kind = ErrorKind::out_of_device_memory;
    none.call = "cuMemCreate";
    const auto mine = team->rank() == 1 ? Result<SharedPhysicalMemory>(none)
                                        : Result<SharedPhysicalMemory>(memory_on(team->device()));
    expect_failure(team->try_exchange_handles("first", mine, soon()), ErrorKind::out_of_device_memory,
                   {"rank 1 (process", "first"});
    const auto empty = team->rank() == 1 ? SharedPhysicalMemory() : memory_on(team->device());
    expect_failure(team->try_exchange_handles("second", empty, soon()), ErrorKind::invalid_use, {"rank 1 (process"});
    const auto hidden =
        memory_on(team->device(), team->rank() == 1 ? HandleTypes() : HandleType::posix_file_descriptor);
    expect_failure(team->try_exchange_handles("third", hidden, soon()), ErrorKind::invalid_use,
                   {"rank 1 (process", "handle_types"});
    EXPECT_TRUE(team->try_exchange_handles("fourth", memory_on(team->device()), soon()));
  });
  EXPECT_TRUE(machine.nothing_live());
}

// Those of an exchange that was broken off lie before those of the next one.
TEST(NodeConnections, PassOverDescriptorsOfEarlierExchanges) {
  TeamMachine machine(2);
  const std::string name = new_meeting_name();
  NodeConnections of_ranks[2];  // which outlive both threads
  run_ranks(2, [&](int place) {
    const int rank = 5 + 2 * place;  // ranks 5 and 7 of some team
    NodeConnections& connections = of_ranks[place];
    connections = NodeConnections::meet(name, {5, 7}, rank, soon()).value();
    const int other = 12 - rank;
    for (std::uint64_t exchange = 1; exchange <= 3; ++exchange) {
      const auto memory = memory_on(machine.device(place));
      auto handle = sharing::ShareableHandle::export_from(memory.memory(), HandleType::posix_file_descriptor);
      EXPECT_TRUE(connections.send(other, exchange, {std::move(handle), 100 * exchange}, soon()));
    }
    EXPECT_EQ(connections.receive(other, 2, soon()).value().bytes, 200u);
    expect_failure(connections.receive(other, 4, Deadline::in(50ms)), ErrorKind::timed_out,
                   {"rank " + std::to_string(other) + " (process"});
    EXPECT_FALSE(connections.ended());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST(NodeConnections, TellThatARankHasEnded) {
  TeamMachine machine(2);
  const std::string name = new_meeting_name();
  run_ranks(2, [&](int rank) {
    auto connections = NodeConnections::meet(name, {0, 1}, rank, soon()).value();
    if (rank == 1) return;
    expect_failure(connections.receive(1, 1, soon()), ErrorKind::peer_gone, {"rank 1 (process"});
    EXPECT_TRUE(connections.ended());
  });
}

TEST(Team, AThousandTeamsTakeNothing) {
  const int rounds = std::getenv("CUVMM_TEST_LONG") != nullptr ? 1000 : 40;
  TeamMachine machine(3);
  const std::string session = new_session();
  std::size_t descriptors = 0;
  std::size_t free = 0;
  const auto round = [&] {
    run_ranks(3, [&](int rank) {
      const CurrentContext context(machine.device(rank));
      const auto team = Team::assemble(SocketBootstrap::join({rank, 3, session}, soon()), machine.device(rank), soon());
      auto memory = SymmetricMemory::create(team, 1_MiB, {.capacity = 4_MiB}, soon());
      memory.grow(2_MiB, soon());
      exchange_texts(memory, 2_MiB, 1);
      memory.close(soon());
    });
  };
  for (int count = 0; count < rounds; ++count) {
    round();
    ASSERT_TRUE(machine.nothing_live());
    if (count == 0) {
      descriptors = cuvmm::test::open_descriptors();
      free = machine.free_memory(1);
    }
  }
  EXPECT_EQ(cuvmm::test::open_descriptors(), descriptors);
  EXPECT_EQ(machine.free_memory(1), free);
}

}  // namespace
}  // namespace cuvmm::team
