// Symmetric memory with a multicast address.
#include <gtest/gtest.h>

#include "failing_calls.hpp"
#include "multicast_machine.hpp"

namespace cuvmm::team {
namespace {

using namespace test;
using driver::EntryPoint;

const SymmetricMemoryOptions if_possible{.capacity = 16_MiB, .multicast = Multicast::if_possible};
const SymmetricMemoryOptions required{.capacity = 16_MiB, .multicast = Multicast::required};

class MulticastMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  }
  const NoSwitches no_switches_{};
};

void expect_all_by_unicast_alone(const SymmetricMemory& memory, const std::vector<std::string>& why) {
  EXPECT_EQ(memory.multicast_size(), 0U);
  EXPECT_FALSE(memory.multicast_address());
  ASSERT_TRUE(memory.why_no_multicast());
  for (const std::string& each : why)
    EXPECT_NE(memory.why_no_multicast()->message().find(each), std::string::npos)
        << each << " in: " << memory.why_no_multicast()->message();
  exchange_texts(memory, 64, 1);
}

TEST_F(MulticastMemory, HasOneAddressForAllPartsWhichStaysAsTheyGrow) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    TeamMachine machine(ranks, with_multicast(ranks));
    machine.run([&](const auto& team) {
      auto memory = SymmetricMemory::create(team, 3_MiB, ranks % 2 == 0 ? if_possible : required, soon());
      const DeviceAddress address = memory.multicast_address().value();
      EXPECT_EQ(memory.multicast_size(), 3_MiB);
      EXPECT_FALSE(memory.why_no_multicast());
      exchange_by_multimem(memory, 2_MiB - 8, 1);
      exchange_texts(memory, 0, 1);
      EXPECT_EQ(memory.grow(1_MiB, soon()), 3_MiB) << "into what the chunk has left";
      EXPECT_EQ(memory.grow(6_MiB, soon()), 4_MiB);
      EXPECT_EQ(memory.multicast_size(), 10_MiB);
      EXPECT_EQ(memory.multicast_address(), address);
      EXPECT_EQ(memory.multicast_address(10_MiB)->value, address.value + 10_MiB);
      EXPECT_THROW(static_cast<void>(memory.multicast_address(10_MiB + 1)), InvalidUse);
      exchange_by_multimem(memory, 10_MiB - 64, 2);
      memory.grow(6_MiB, soon());
      exchange_by_multimem(memory, 16_MiB - 64, 3);
      exchange_texts(memory, 16_MiB - 20, 2);
      EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastAddDevice], 1U) << "one object for all";
      EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastBindMem], 3U);
      memory.close(soon());
      EXPECT_EQ(memory.multicast_size(), 0U);
    });
    EXPECT_TRUE(machine.nothing_live());
  }
}

TEST_F(MulticastMemory, IsMadeOnlyWhereItIsAskedFor) {
  TeamMachine machine(2, with_multicast(2));
  machine.run([&](const auto& team) {
    auto memory = SymmetricMemory::create(team, 1_MiB, {}, soon());
    EXPECT_FALSE(memory.multicast_address());
    EXPECT_FALSE(memory.why_no_multicast());
    memory.close(soon());
    EXPECT_THROW(static_cast<void>(memory.multicast_address()), InvalidUse);
    EXPECT_THROW(static_cast<void>(memory.why_no_multicast()), InvalidUse);
  });
  for (int rank = 0; rank < 2; ++rank)
    for (const driver::EntryPointInfo& each : driver::entry_points)
      EXPECT_TRUE(each.group != driver::EntryPointGroup::multicast || machine.calls(rank)[each.entry_point] == 0)
          << each.name;
}

TEST_F(MulticastMemory, DifferentWishesAreRefusedOnAll) {
  TeamMachine machine(3, with_multicast(3));
  machine.run([&](const auto& team) {
    for (const Multicast other : {Multicast::never, Multicast::required}) {
      SymmetricMemoryOptions options = if_possible;
      if (team->rank() == 2) options.multicast = other;
      expect_failure(SymmetricMemory::try_create(team, 1_MiB, options, soon()), ErrorKind::invalid_use,
                     {"rank 0: bytes = 1048576", "multicast if possible; rank 2",
                      other == Multicast::never ? "multicast never" : "multicast required"});
    }
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastCreate], 0U);
  });
}

TEST_F(MulticastMemory, C15_AMachineWithoutGoesOnUnlessItIsRequired) {
  TeamMachine machine(3);
  machine.run([](const auto& team) {
    expect_failure(SymmetricMemory::try_create(team, 1_MiB, required, soon()), ErrorKind::not_supported,
                   {"refused by 3 of 3", "multicast", "device 1 announces none"});
    auto memory = SymmetricMemory::create(team, 1_MiB, if_possible, soon());
    expect_all_by_unicast_alone(memory, {"refused by 3 of 3", "announces none"});
    memory.grow(2_MiB, soon());
    exchange_texts(memory, 2_MiB, 2);
    memory.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(MulticastMemory, ASwitchIsObeyed) {
  TeamMachine machine(2, with_multicast(2));
  const cuvmm::test::EnvironmentVariable off("CUVMM_MULTICAST", "0");
  machine.run([&](const auto& team) {
    auto memory = SymmetricMemory::create(team, 1_MiB, if_possible, soon());
    expect_all_by_unicast_alone(memory, {"CUVMM_MULTICAST=0"});
    memory.close(soon());
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastGetGranularity], 0U);
  });
}

TEST_F(MulticastMemory, C11_AllFallBackForTheSameReason) {
  using Kind = emulator::MulticastFailure::Kind;
  const std::pair<Kind, std::string> cases[] = {
      {Kind::not_ready, "SYSTEM_NOT_READY"}, {Kind::illegal_state, "ILLEGAL_STATE"}, {Kind::out_of_memory, "SLOTS"}};
  for (const auto& each : cases) {
    auto configuration = with_multicast(8);
    configuration.multicast_failures = {{3, each.first, 0}};
    TeamMachine machine(8, configuration);
    machine.run([&](const auto& team) {
      auto memory = SymmetricMemory::create(team, 1_MiB, if_possible, soon());
      expect_all_by_unicast_alone(memory, {"refused by 1 of 8", "rank 3 (process", each.second});
      memory.close(soon());
      expect_failure(SymmetricMemory::try_create(team, 1_MiB, required, soon()),
                     each.first == Kind::out_of_memory ? ErrorKind::out_of_multicast_slots : ErrorKind::driver_failure,
                     {"refused by 1 of 8", "rank 3 (process", each.second});
    });
    EXPECT_TRUE(machine.nothing_live()) << each.second;
  }
}

// What is there stays, in use; the new bytes are reached by unicast alone.
TEST_F(MulticastMemory, AGrowthThatCannotBeBoundGoesOnWithout) {
  TeamMachine machine(3, with_multicast(3));
  machine.run([&](const auto& team) {
    auto memory = SymmetricMemory::create(team, 2_MiB, if_possible, soon());
    const auto address = memory.multicast_address();
    if (team->rank() == 1) machine.faults(1).inject({.entry_point = EntryPoint::cuMulticastBindMem});
    EXPECT_EQ(memory.grow(2_MiB, soon()), 2_MiB);
    ASSERT_TRUE(memory.why_no_multicast());
    EXPECT_NE(memory.why_no_multicast()->message().find("rank 1 (process"), std::string::npos);
    EXPECT_EQ(memory.multicast_size(), 2_MiB);
    EXPECT_EQ(memory.multicast_address(), address);
    EXPECT_FALSE(memory.multicast_address(2_MiB + 8));
    exchange_by_multimem(memory, 2_MiB - 64, 1);
    exchange_texts(memory, 3_MiB, 1);
    memory.grow(2_MiB, soon());
    EXPECT_EQ(memory.multicast_size(), 2_MiB);
    exchange_texts(memory, 5_MiB, 2);
    memory.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(MulticastMemory, AGrowthThatHasToBeBoundIsRefusedAndDoneAgainAlike) {
  TeamMachine machine(3, with_multicast(3));
  machine.run([&](const auto& team) {
    auto memory = SymmetricMemory::create(team, 2_MiB, required, soon());
    if (team->rank() == 1) machine.faults(1).inject({.entry_point = EntryPoint::cuMulticastBindMem});
    expect_failure(memory.try_grow(2_MiB, soon()), ErrorKind::driver_failure,
                   {"rank 1 (process", "cuMulticastBindMem"});
    EXPECT_EQ(memory.size(), 2_MiB);
    exchange_by_multimem(memory, 2_MiB - 64, 1);
    expect_failure(memory.try_grow(4_MiB, soon()), ErrorKind::invalid_use, {"Grow by the same again"});
    EXPECT_EQ(memory.grow(2_MiB, soon()), 2_MiB);
    EXPECT_EQ(memory.grow(4_MiB, soon()), 4_MiB);
    EXPECT_EQ(memory.multicast_size(), 8_MiB);
    exchange_by_multimem(memory, 4_MiB - 64, 2);
    exchange_by_multimem(memory, 8_MiB - 64, 3);
    exchange_texts(memory, 3_MiB, 1);
    memory.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

// What the memory was told of is waited for before anybody unmaps the object.
TEST_F(MulticastMemory, WorkIsWaitedForBeforeAnybodyUnmaps) {
  TeamMachine machine(2, with_multicast(2));
  machine.run([&](const auto& team) {
    SymmetricMemoryOptions options = required;
    options.device_wait = 50ms;
    auto memory = SymmetricMemory::create(team, 1_MiB, options, soon());
    driver::Interface& driver = team->device().driver().interface();
    abi::CUstream stream = nullptr;
    std::atomic<bool> go_on = false;
    if (team->rank() == 0) {
      driver.cuStreamCreate(&stream, 1);
      memory.used_on(stream);
      driver.cuLaunchHostFunc(
          stream,
          [](void* flag) {
            while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::sleep_for(1ms);
          },
          &go_on);
    }
    expect_failure(memory.try_close(soon()), ErrorKind::timed_out, {"refused by 1 of 2", "rank 0 (process"});
    EXPECT_TRUE(memory.multicast_address());
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMemUnmap], 0U);
    go_on = true;
    if (team->rank() == 0) driver.cuStreamSynchronize(stream);
    memory.close(soon());
    if (team->rank() == 0) driver.cuStreamDestroy(stream);
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(MulticastMemory, ACallThatBlocksLeavesTheRestOfTheTimeForUnicast) {
  std::shared_ptr<BlockingDriver> blocking;
  TeamMachine machine(3, with_multicast(3), [&](int rank, std::shared_ptr<driver::Interface> below) {
    if (rank != 1) return below;
    blocking = std::make_shared<BlockingDriver>(std::move(below), EntryPoint::cuMulticastBindMem);
    blocking->block();
    return std::shared_ptr<driver::Interface>(blocking);
  });
  machine.run([&](const auto& team) {
    auto memory = SymmetricMemory::create(team, 1_MiB, if_possible, Deadline::in(4s));
    expect_all_by_unicast_alone(memory, {"refused by 1 of 3", "rank 1 (process", "cuvmm-multicast"});
    memory.grow(2_MiB, soon());
    memory.close(soon());
  });
  blocking->let_go();
  for (int round = 0; round < 10'000 && !machine.nothing_live(); ++round) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(machine.nothing_live()) << "the thread gives back what it has used";
}

TEST_F(MulticastMemory, CreationWithItIsDoneByAllOrNoneWhicheverCallFails) {
  for (const int ranks : {2, 3, 4}) {
    TeamMachine machine(ranks, with_multicast(ranks));
    std::vector<std::optional<SymmetricMemory>> made(static_cast<std::size_t>(ranks));
    const auto mine = [&](const auto& team) -> auto& {
      return made[static_cast<std::size_t>(team->rank())];
    };
    const auto after = [&](const auto& team) {
      exchange_texts(*mine(team), 0, 1);
      mine(team)->close(soon());
      mine(team).reset();
    };
    const auto creating = [&](const SymmetricMemoryOptions& options) {
      return [&, options](const auto& team) -> Result<void> {
        auto memory = SymmetricMemory::try_create(team, 1_MiB, options, soon());
        if (!memory) return memory.failure();
        mine(team).emplace(std::move(memory).value());
        return {};
      };
    };
    fail_at_each_call(machine, {.attempt = creating(required), .after = [&](const auto& team) {
                                  exchange_by_multimem(*mine(team), 64, 1);
                                  after(team);
                                }});
    if (ranks != 3) continue;
    // The same on all, multicast or none.
    std::atomic<int> without = 0;
    fail_at_each_call(machine, {.attempt = creating(if_possible), .after = [&](const auto& team) {
                                  if (!mine(team)->multicast_address()) ++without;
                                  team->vote("counted", {}, soon());
                                  EXPECT_TRUE(without == 0 || without == ranks) << without;
                                  team->vote("compared", {}, soon());
                                  without = 0;
                                  after(team);
                                }});
  }
}

TEST_F(MulticastMemory, GrowthWithItIsDoneByAllOrNoneWhicheverCallFails) {
  TeamMachine machine(3, with_multicast(3));
  std::vector<std::optional<SymmetricMemory>> made(3);
  const auto mine = [&](const auto& team) -> auto& {
    return made[static_cast<std::size_t>(team->rank())];
  };
  fail_at_each_call(machine, {.before =
                                  [&](const auto& team) {
                                    mine(team).emplace(SymmetricMemory::create(team, 1_MiB, required, soon()));
                                    exchange_by_multimem(*mine(team), 0, 1);
                                  },
                              .attempt = [&](const auto& team) { return grow_from_1_to_4_mib(*mine(team)); },
                              .after =
                                  [&](const auto& team) {
                                    exchange_by_multimem(*mine(team), 3_MiB, 2);
                                    exchange_texts(*mine(team), 2_MiB, 2);
                                    mine(team)->close(soon());
                                    mine(team).reset();
                                  }});
}

// A teardown that fails on one rank is told to all, and done by all once more.
TEST_F(MulticastMemory, C15_ATeardownThatFailsOnceCanBeRepeated) {
  const cuvmm::test::RecordingHandler reports;
  for (const EntryPoint entry : {EntryPoint::cuMemUnmap, EntryPoint::cuMemAddressFree, EntryPoint::cuMulticastUnbind})
    for (std::uint64_t call = 1; call <= 2; ++call) {
      TeamMachine machine(3, with_multicast(3));
      machine.run([&](const auto& team) {
        auto memory = SymmetricMemory::create(team, 1_MiB, required, soon());
        memory.grow(2_MiB, soon());
        if (team->rank() == 2) machine.faults(2).inject({.entry_point = entry, .call = call, .lasting = true});
        expect_failure(memory.try_close(soon()), ErrorKind::driver_failure,
                       {"refused by 1 of 3", "rank 2 (process", std::string(driver::name(entry))});
        EXPECT_FALSE(memory.team() == nullptr);
        EXPECT_EQ(memory.multicast_size(), 0U);
        if (team->rank() == 2) machine.faults(2).clear();
        memory.close(soon());
      });
      EXPECT_TRUE(machine.nothing_live()) << driver::name(entry) << " " << call;
    }
}

}  // namespace
}  // namespace cuvmm::team
