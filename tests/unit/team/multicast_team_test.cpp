#include "cuvmm/team/multicast_team.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "failing_calls.hpp"
#include "multicast_machine.hpp"
#include "sharing/open_descriptors.hpp"
#include "sharing/wire.hpp"

namespace cuvmm::team {
namespace {

using namespace test;
using driver::EntryPoint;

constexpr std::size_t unit = 2_MiB;

// A rank's memory, mapped for its device alone.
struct OwnMemory {
  explicit OwnMemory(const Team& team, std::size_t bytes = unit)
      : range(MappedRange::create(
            team.device().driver(),
            {.capacity = bytes,
             .memory = {.location = team.device().location(), .handle_types = HandleType::posix_file_descriptor},
             .chunks = ChunkPolicy::fixed(bytes)})) {
    range.append(bytes);
  }
  [[nodiscard]] SharedPhysicalMemory memory() const { return range.memory_at(0); }

  MappedRange range;
};

class MulticastTeamTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  }

  // What a team does of which no call fails.
  static void use(const std::shared_ptr<Team>& team, std::uint64_t round = 1) {
    const OwnMemory own(*team);
    auto multicast = MulticastTeam::create(team, unit, {}, soon());
    multicast.bind(0, own.memory(), 0, unit, soon());
    exchange_by_multimem(*team, multicast.address(), own.range, 0, round);
    multicast.close(soon());
  }

  const NoSwitches no_switches_{};
};

TEST_F(MulticastTeamTest, OneStoreReachesTheMemoryOfEveryRank) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const auto steps = std::make_shared<StepsOfTeam>(ranks);
    TeamMachine machine(ranks, with_multicast(ranks), [&](int rank, auto below) {
      return std::make_shared<StepsDriver>(rank, std::move(below), steps);
    });
    machine.run([](const auto& team) {
      const OwnMemory own(*team);
      auto multicast = MulticastTeam::create(team, unit - 5, {}, soon());
      EXPECT_EQ(multicast.size(), unit);
      EXPECT_EQ(multicast.granularity(), unit);
      EXPECT_FALSE(multicast.is_mapped());
      EXPECT_THROW(static_cast<void>(multicast.address()), InvalidUse);
      multicast.bind(0, own.memory(), 0, unit, soon());
      EXPECT_TRUE(multicast.is_mapped());
      EXPECT_EQ(multicast.address(unit).value, multicast.address().value + unit);
      EXPECT_THROW(static_cast<void>(multicast.address(unit + 1)), InvalidUse);
      exchange_by_multimem(*team, multicast.address(64), own.range, 64, 1);
      multicast.close(soon());
      EXPECT_EQ(multicast.team(), nullptr);
      EXPECT_EQ(multicast.size() + multicast.granularity(), 0U);
    });
    EXPECT_TRUE(machine.nothing_live());
  }
}

// One object takes one slot, however many buffers it has; they are bound while it is mapped.
TEST_F(MulticastTeamTest, SeveralBuffersShareOneObject) {
  auto configuration = with_multicast(3);
  configuration.multicast_slots = 1;
  TeamMachine machine(3, configuration);
  machine.run([](const auto& team) {
    const OwnMemory first(*team);
    const OwnMemory second(*team, 3 * unit);
    auto multicast = MulticastTeam::create(team, 4 * unit, {}, soon());
    multicast.bind(unit, first.memory(), 0, unit, soon());
    const DeviceAddress address = multicast.address();
    exchange_by_multimem(*team, multicast.address(unit), first.range, 0, 1);
    multicast.bind(2 * unit, second.memory(), unit, 2 * unit, soon());
    multicast.bind(0, second.memory(), 0, unit, soon());
    EXPECT_EQ(multicast.address(), address);
    exchange_by_multimem(*team, multicast.address(unit), first.range, 0, 2);
    exchange_by_multimem(*team, multicast.address(2 * unit + 8), second.range, unit + 8, 3);
    exchange_by_multimem(*team, multicast.address(4 * unit - 64), second.range, 3 * unit - 64, 4);
    exchange_by_multimem(*team, multicast.address(), second.range, 0, 5);
    // A second object finds no room in the switch, which all are told.
    auto another = MulticastTeam::create(team, unit, {}, soon());
    expect_failure(another.try_bind(0, first.memory(), 0, unit, soon()), ErrorKind::out_of_multicast_slots,
                   {"refused by 3 of 3", "MULTICAST-SLOTS"});
    multicast.close(soon());
    another.bind(0, first.memory(), 0, unit, soon());
    exchange_by_multimem(*team, another.address(), first.range, 0, 6);
    another.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(MulticastTeamTest, DestructionAloneGivesEverythingBackToo) {
  TeamMachine machine(4, with_multicast(4));
  machine.run([](const auto& team) {
    const OwnMemory own(*team);
    auto one = MulticastTeam::create(team, unit, {}, soon());
    one.bind(0, own.memory(), 0, unit, soon());
    auto other = MulticastTeam::create(team, unit, {}, soon());
    other.bind(0, own.memory(), 0, unit, soon());
    team->vote("nobody uses the first one", {}, soon());
    one = std::move(other);
    exchange_by_multimem(*team, one.address(), own.range, 0, 1);
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(MulticastTeamTest, WhatRanksDoNotAgreeOnIsRefusedOnAll) {
  TeamMachine machine(3, with_multicast(3));
  machine.run([&](const auto& team) {
    const bool odd = team->rank() == 1;
    const auto refused = [&](std::size_t bytes, const MulticastTeamOptions& options, const std::string& words) {
      expect_failure(MulticastTeam::try_create(team, bytes, options, soon()), ErrorKind::invalid_use, {words});
    };
    refused(odd ? unit : 2 * unit, {}, "rank 0: bytes = 4194304; rank 1: bytes = 2097152");
    refused(odd ? 0 : unit, {}, "rank 1 (process");
    refused(unit, {.bind_attempts = odd ? 0 : 1}, "bind_attempts = 0");
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastCreate], 0U);
    refused(std::size_t{1} << 63, {}, "rank 0 (process");  // which the root alone finds out

    const OwnMemory own(*team, 2 * unit);
    auto multicast = MulticastTeam::create(team, 2 * unit, {}, soon());
    const auto bind = [&](std::size_t offset, std::size_t memory_offset, std::size_t bytes) {
      return multicast.try_bind(offset, own.memory(), memory_offset, bytes, soon());
    };
    expect_failure(bind(odd ? unit : 0, 0, unit), ErrorKind::invalid_use, {"rank 1 passes"});
    expect_failure(bind(0, 0, odd ? unit : 2 * unit), ErrorKind::invalid_use, {"rank 1 passes"});
    expect_failure(bind(0, odd ? 1 : 0, unit), ErrorKind::invalid_use, {"rank 1 (process", "MULTICAST-BIND-RANGE"});
    expect_failure(bind(0, odd ? 2 * unit : 0, unit), ErrorKind::invalid_use, {"MULTICAST-BIND-RANGE"});
    const auto memory = odd ? SharedPhysicalMemory() : own.memory();
    expect_failure(multicast.try_bind(0, memory, 0, unit, soon()), ErrorKind::invalid_use, {"refused by 1 of 3"});
    const SharedPhysicalMemory foreign(PhysicalMemory::create(
        team->device().driver(),
        {.location = Location::device(DeviceOrdinal(0)), .handle_types = HandleType::posix_file_descriptor}, unit));
    expect_failure(multicast.try_bind(0, odd ? foreign : own.memory(), 0, unit, soon()), ErrorKind::invalid_use,
                   {"rank 1 (process", "MULTICAST-BIND-MEMORY"});
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastBindMem], 0U) << "one refusal keeps all from binding";
    ASSERT_TRUE(bind(0, odd ? unit : 0, unit));
    expect_failure(bind(0, odd ? 0 : unit, unit), ErrorKind::invalid_use, {"MULTICAST-BIND-ONCE"});
    multicast.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(MulticastTeamTest, TwoRanksOfOneDeviceAreRefusedOnAll) {
  TeamMachine machine(2, with_multicast(2));
  run_team(2, [&](std::unique_ptr<SocketBootstrap> bootstrap) {
    const CurrentContext context(machine.device(0));
    const auto team = Team::assemble(std::move(bootstrap), machine.device(0), soon());
    expect_failure(MulticastTeam::try_create(team, unit, {}, soon()), ErrorKind::invalid_use,
                   {"ranks 0 and 1", "MULTICAST-JOIN-ONCE"});
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(MulticastTeamTest, AMovedFromOneIsRefused) {
  TeamMachine machine(2, with_multicast(2));
  machine.run([](const auto& team) {
    auto one = MulticastTeam::create(team, unit, {}, soon());
    auto taken = std::move(one);
    expect_failure(one.try_bind(0, {}, 0, unit, soon()), ErrorKind::invalid_use, {"owns nothing"});
    expect_failure(one.try_close(soon()), ErrorKind::invalid_use, {"owns nothing"});
    EXPECT_THROW(static_cast<void>(one.address()), InvalidUse);
    EXPECT_THROW(static_cast<void>(one.uses()), InvalidUse);
    EXPECT_THROW(one.used_on(nullptr), InvalidUse);
    EXPECT_EQ(one.size(), 0U);
    expect_failure(MulticastTeam::try_create(nullptr, unit, {}, soon()), ErrorKind::invalid_use, {"team"});
    taken.close(soon());
  });
}

// --- No multicast.

TEST_F(MulticastTeamTest, ASwitchRefusesItBeforeAnyCall) {
  TeamMachine machine(2, with_multicast(2));
  for (const char* const variable : {"CUVMM_MULTICAST", "NCCL_NVLS_ENABLE"}) {
    const cuvmm::test::EnvironmentVariable off(variable, "0");
    machine.run([&](const auto& team) {
      const auto before = machine.calls(team->rank());
      expect_failure(MulticastTeam::try_create(team, unit, {}, soon()), ErrorKind::not_supported,
                     {"refused by 2 of 2", std::string(variable) + "=0"});
      EXPECT_EQ(before.called(), machine.calls(team->rank()).called());
      team->vote("the team goes on", {}, soon());
    });
  }
  const cuvmm::test::EnvironmentVariable on("CUVMM_MULTICAST", "1");
  machine.run([](const auto& team) { use(team); });
}

// One rank's driver does not know multicast.
TEST_F(MulticastTeamTest, ARankWithoutMulticastLeavesAllWithout) {
  class WithoutMulticast final : public driver::Decorator<WithoutMulticast> {
   public:
    using Decorator::Decorator;
    [[nodiscard]] bool has(EntryPoint entry) const noexcept override {
      return driver::info(entry).group != driver::EntryPointGroup::multicast && next().has(entry);
    }
  };
  TeamMachine machine(3, with_multicast(3), [](int rank, std::shared_ptr<driver::Interface> below) {
    return rank == 2 ? std::make_shared<WithoutMulticast>(std::move(below)) : below;
  });
  machine.run([&](const auto& team) {
    expect_failure(MulticastTeam::try_create(team, unit, {}, soon()), ErrorKind::not_supported,
                   {"refused by 1 of 3", "rank 2 (process", "device 2 announces none"});
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastCreate], 0U);
    team->vote("the team goes on", {}, soon());
  });
}

// --- Binds that fail.

emulator::MulticastFailure failing(int device, emulator::MulticastFailure::Kind kind, int times = 0) {
  return {device, kind, times};
}

TEST_F(MulticastTeamTest, C11_ABindThatFailsOnOneRankOfEightIsTheVerdictOfAll) {
  using Kind = emulator::MulticastFailure::Kind;
  const struct {
    Kind kind;
    ErrorKind error;
    std::string words;
    std::uint64_t tries;
  } cases[] = {{Kind::not_ready, ErrorKind::driver_failure, "SYSTEM_NOT_READY", 3},
               {Kind::illegal_state, ErrorKind::driver_failure, "ILLEGAL_STATE", 1},
               {Kind::out_of_memory, ErrorKind::out_of_multicast_slots, "MULTICAST-SLOTS", 1}};
  for (const auto& each : cases) {
    auto configuration = with_multicast(8);
    configuration.multicast_failures = {failing(3, each.kind)};
    TeamMachine machine(8, configuration);
    machine.run([&](const auto& team) {
      const OwnMemory own(*team);
      {
        auto multicast = MulticastTeam::create(team, unit, {.bind_attempts = 3, .bind_pause = 1ms}, soon());
        for (int round = 0; round < 2; ++round)
          expect_failure(multicast.try_bind(0, own.memory(), 0, unit, soon()), each.error,
                         {"refused by 1 of 8", "rank 3 (process", each.words});
        EXPECT_FALSE(multicast.is_mapped());
        EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastUnbind], team->rank() == 3 ? 0U : 2U);
      }
      EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastBindMem], 2 * (team->rank() == 3 ? each.tries : 1));
      // The team goes on without.
      auto memory = SymmetricMemory::create(team, 1_MiB, {}, soon());
      exchange_texts(memory, 0, 1);
      memory.close(soon());
    });
    EXPECT_TRUE(machine.nothing_live()) << each.words;
  }
}

TEST_F(MulticastTeamTest, C12_ARankThatIsNotReadyYetIsWaitedForByAll) {
  auto configuration = with_multicast(4);
  configuration.multicast_failures = {failing(2, emulator::MulticastFailure::Kind::not_ready, 2)};
  TeamMachine machine(4, configuration);
  machine.run([&](const auto& team) {
    use(team);
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastBindMem], team->rank() == 2 ? 3U : 1U);
  });
  EXPECT_TRUE(machine.nothing_live());
}

// Of the ranks' numbers the least counts: else some would try again alone.
TEST_F(MulticastTeamTest, NobodyTriesMoreOftenThanAnother) {
  auto configuration = with_multicast(2);
  configuration.multicast_failures = {failing(0, emulator::MulticastFailure::Kind::not_ready)};
  TeamMachine machine(2, configuration);
  machine.run([&](const auto& team) {
    const OwnMemory own(*team);
    auto multicast =
        MulticastTeam::create(team, unit, {.bind_attempts = 4 - team->rank() * 2, .bind_pause = 1ms}, soon());
    expect_failure(multicast.try_bind(0, own.memory(), 0, unit, soon()), ErrorKind::driver_failure, {"rank 0 ("});
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastBindMem], team->rank() == 0 ? 2U : 1U);
    multicast.close(soon());
  });
}

// A mapped object is not unbound from: those that could bind have done so already when all try again.
TEST_F(MulticastTeamTest, ABindToAMappedObjectIsDoneAgainWithTheSameMemory) {
  TeamMachine machine(3, with_multicast(3));
  machine.run([&](const auto& team) {
    const OwnMemory first(*team);
    const OwnMemory second(*team);
    auto multicast = MulticastTeam::create(team, 2 * unit, {}, soon());
    multicast.bind(0, first.memory(), 0, unit, soon());
    if (team->rank() == 1)
      machine.faults(1).inject(
          {.entry_point = EntryPoint::cuMulticastBindMem, .result = abi::CUDA_ERROR_ILLEGAL_STATE});
    expect_failure(multicast.try_bind(unit, second.memory(), 0, unit, soon()), ErrorKind::driver_failure,
                   {"rank 1 (process"});
    exchange_by_multimem(*team, multicast.address(), first.range, 0, 1);
    const OwnMemory other(*team);
    expect_failure(multicast.try_bind(unit, other.memory(), 0, unit, soon()), ErrorKind::invalid_use,
                   {"refused by 2 of 3", "MULTICAST-BIND-ONCE"});
    multicast.bind(unit, second.memory(), 0, unit, soon());
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastUnbind], 0U);
    exchange_by_multimem(*team, multicast.address(unit), second.range, 0, 2);
    multicast.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(MulticastTeamTest, IsMadeByAllOrNoneWhicheverCallFails) {
  for (const int ranks : {2, 3, 4}) {
    const auto steps = std::make_shared<StepsOfTeam>(ranks);
    TeamMachine machine(ranks, with_multicast(ranks), [&](int rank, auto below) {
      return std::make_shared<StepsDriver>(rank, std::move(below), steps);
    });
    std::vector<std::optional<OwnMemory>> memories(static_cast<std::size_t>(ranks));
    std::vector<std::optional<MulticastTeam>> made(static_cast<std::size_t>(ranks));
    const auto place = [](const auto& team) { return static_cast<std::size_t>(team->rank()); };
    fail_at_each_call(machine, {.before = [&](const auto& team) { memories[place(team)].emplace(*team); },
                                .attempt = [&](const auto& team) -> Result<void> {
                                  auto multicast = MulticastTeam::try_create(team, 2 * unit, {}, soon());
                                  if (!multicast) return multicast.failure();
                                  auto bound =
                                      multicast->try_bind(unit, memories[place(team)]->memory(), 0, unit, soon());
                                  if (bound) made[place(team)].emplace(std::move(multicast).value());
                                  return bound;
                                },
                                .after =
                                    [&](const auto& team) {
                                      exchange_by_multimem(*team, made[place(team)]->address(unit),
                                                           memories[place(team)]->range, 0, 1);
                                      made[place(team)]->close(soon());
                                      made[place(team)].reset();
                                      memories[place(team)].reset();
                                    }});
  }
}

// --- Teardown.

TEST_F(MulticastTeamTest, C15_ATeardownThatFailsOnceIsToldToAllAndCanBeRepeated) {
  for (const EntryPoint entry : {EntryPoint::cuMemUnmap, EntryPoint::cuMemAddressFree, EntryPoint::cuMulticastUnbind})
    for (const auto& each : {std::pair(2, 0), {2, 1}, {3, 0}, {3, 2}, {4, 3}}) {
      const int ranks = each.first;
      const int failing_rank = each.second;
      TeamMachine machine(ranks, with_multicast(ranks));
      machine.run([&](const auto& team) {
        const OwnMemory own(*team);
        auto multicast = MulticastTeam::create(team, unit, {}, soon());
        multicast.bind(0, own.memory(), 0, unit, soon());
        if (team->rank() == failing_rank) machine.faults(failing_rank).inject({.entry_point = entry});
        expect_failure(multicast.try_close(soon()), ErrorKind::driver_failure,
                       {"refused by 1 of " + std::to_string(ranks),
                        "rank " + std::to_string(failing_rank) + " (process", std::string(driver::name(entry))});
        EXPECT_FALSE(multicast.is_mapped());
        expect_failure(multicast.try_bind(0, own.memory(), 0, unit, soon()), ErrorKind::invalid_use, {"close()"});
        multicast.close(soon());
        EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastUnbind],
                  team->rank() == failing_rank && entry == EntryPoint::cuMulticastUnbind ? 2U : 1U);
      });
      EXPECT_TRUE(machine.nothing_live()) << driver::name(entry);
    }
}

// A new stream, whose work ends when the flag is set.
abi::CUstream stream_that_waits(driver::Interface& driver, std::atomic<bool>& go_on) {
  abi::CUstream stream = nullptr;
  driver.cuStreamCreate(&stream, abi::CU_STREAM_NON_BLOCKING);
  driver.cuLaunchHostFunc(
      stream,
      [](void* flag) {
        while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::sleep_for(1ms);
      },
      &go_on);
  return stream;
}

// Work of one rank is waited for before any of them unmaps.
TEST_F(MulticastTeamTest, WorkIsWaitedForBeforeAnybodyUnmaps) {
  TeamMachine machine(2, with_multicast(2));
  machine.run([&](const auto& team) {
    const OwnMemory own(*team);
    auto multicast = MulticastTeam::create(team, unit, {.device_wait = 50ms}, soon());
    multicast.bind(0, own.memory(), 0, unit, soon());
    driver::Interface& driver = team->device().driver().interface();
    abi::CUstream stream = nullptr;
    std::atomic<bool> go_on = false;
    if (team->rank() == 1) {
      stream = stream_that_waits(driver, go_on);
      multicast.used_on(stream);
    }
    expect_failure(multicast.try_close(soon()), ErrorKind::timed_out, {"refused by 1 of 2", "rank 1 (process"});
    EXPECT_TRUE(multicast.is_mapped());
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMemUnmap], 0U);
    go_on = true;
    if (team->rank() == 1) driver.cuStreamSynchronize(stream);
    multicast.close(soon());
    if (team->rank() == 1) driver.cuStreamDestroy(stream);
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(MulticastTeamTest, AThousandTeamsTakeNothing) {
  const int rounds = std::getenv("CUVMM_TEST_LONG") != nullptr ? 1000 : 40;
  auto configuration = with_multicast(3);
  configuration.multicast_slots = 1;
  TeamMachine machine(3, configuration);
  std::size_t descriptors = 0;
  std::size_t free = 0;
  for (int round = 0; round < rounds; ++round) {
    machine.run([&](const auto& team) { use(team, static_cast<std::uint64_t>(round)); });
    ASSERT_TRUE(machine.nothing_live());
    if (round == 0) {
      descriptors = cuvmm::test::open_descriptors();
      free = machine.free_memory(1);
    }
  }
  EXPECT_EQ(cuvmm::test::open_descriptors(), descriptors);
  EXPECT_EQ(machine.free_memory(1), free);
}

// --- Calls that do not return.

// A machine of which rank 1's calls of one entry point can be blocked.
struct BlockingMachine {
  explicit BlockingMachine(EntryPoint where, int ranks = 3)
      : machine(ranks, with_multicast(ranks), [&](int rank, std::shared_ptr<driver::Interface> below) {
          if (rank != 1) return below;
          blocking = std::make_shared<BlockingDriver>(std::move(below), where);
          return std::shared_ptr<driver::Interface>(blocking);
        }) {}

  [[nodiscard]] bool nothing_live_soon() const {
    for (int round = 0; round < 10'000 && !machine.nothing_live(); ++round) std::this_thread::sleep_for(1ms);
    return machine.nothing_live();
  }

  std::shared_ptr<BlockingDriver> blocking;
  TeamMachine machine;
};

TEST_F(MulticastTeamTest, ABlockedCallEndsByTheDeadlineAndIsGivenBackWhenItReturns) {
  for (const EntryPoint entry : {EntryPoint::cuMulticastBindMem, EntryPoint::cuMemMap}) {
    BlockingMachine blocked(entry);
    const std::string name(driver::name(entry));
    blocked.machine.run([&](const auto& team) {
      const OwnMemory own(*team);
      {
        auto multicast = MulticastTeam::create(team, unit, {}, soon());
        if (team->rank() == 1) blocked.blocking->block();
        team->vote("blocks from now on", {}, soon());
        expect_failure(multicast.try_bind(0, own.memory(), 0, unit, Deadline::in(2s)), ErrorKind::timed_out,
                       {"refused by 1 of 3", "rank 1 (process", name, "cuvmm-multicast", "thread "});
        // As long as it is blocked nothing is bound, on no rank.
        expect_failure(multicast.try_bind(0, own.memory(), 0, unit, soon()), ErrorKind::timed_out,
                       {"rank 1 (process", name});
        team->vote("the team goes on", {}, soon());
      }
      // Another object is made while the thread is still in its call.
      team->vote("the first one is gone", {}, soon());
      if (team->rank() == 0) blocked.blocking->let_go();
      team->vote("let go", {}, soon());
      use(team);
    });
    EXPECT_TRUE(blocked.nothing_live_soon()) << name;
  }
}

// The call returns while the object lives: what it did is found, and the rest is done.
TEST_F(MulticastTeamTest, ACallThatReturnsLateIsTakenUp) {
  for (const EntryPoint entry : {EntryPoint::cuMulticastBindMem, EntryPoint::cuMemMap}) {
    BlockingMachine blocked(entry);
    blocked.machine.run([&](const auto& team) {
      const OwnMemory own(*team);
      auto multicast = MulticastTeam::create(team, unit, {}, soon());
      if (team->rank() == 1) blocked.blocking->block();
      team->vote("blocks from now on", {}, soon());
      expect_failure(multicast.try_bind(0, own.memory(), 0, unit, Deadline::in(2s)), ErrorKind::timed_out,
                     {"rank 1 (process"});
      if (team->rank() == 1) blocked.blocking->let_go();
      team->vote("let go", {}, soon());
      Result<void> bound = multicast.try_bind(0, own.memory(), 0, unit, soon());
      while (!bound && bound.failure().kind == ErrorKind::timed_out)
        bound = multicast.try_bind(0, own.memory(), 0, unit, soon());
      EXPECT_TRUE(bound) << bound.failure().message();
      exchange_by_multimem(*team, multicast.address(), own.range, 0, 1);
      multicast.close(soon());
    });
    EXPECT_TRUE(blocked.nothing_live_soon());
  }
}

// In the growth of an object that is mapped and in use: it stays so, and is given back once the call has returned.
TEST_F(MulticastTeamTest, ABlockedBindToAMappedObjectLeavesItInUse) {
  BlockingMachine blocked(EntryPoint::cuMulticastBindMem);
  blocked.machine.run([&](const auto& team) {
    const OwnMemory first(*team);
    const OwnMemory second(*team);
    auto multicast = MulticastTeam::create(team, 2 * unit, {}, soon());
    multicast.bind(0, first.memory(), 0, unit, soon());
    if (team->rank() == 1) blocked.blocking->block();
    team->vote("blocks from now on", {}, soon());
    expect_failure(multicast.try_bind(unit, second.memory(), 0, unit, Deadline::in(2s)), ErrorKind::timed_out,
                   {"rank 1 (process"});
    exchange_by_multimem(*team, multicast.address(), first.range, 0, 1);
    expect_failure(multicast.try_close(Deadline::in(2s)), ErrorKind::timed_out,
                   {"rank 1 (process", "cuMulticastBindMem"});
    exchange_by_multimem(*team, multicast.address(), first.range, 0, 2);
    if (team->rank() == 1) blocked.blocking->let_go();
    multicast.close(soon());
  });
  EXPECT_TRUE(blocked.nothing_live_soon());
}

// A rank that answers for its device and has not added it: the others would hang in the driver.
TEST_F(MulticastTeamTest, ADeviceThatWasNeverAddedBlocksNobodyForEver) {
  class Forgetful final : public driver::Decorator<Forgetful> {
   public:
    using Decorator::Decorator;
    abi::CUresult cuMulticastAddDevice(abi::CUmemGenericAllocationHandle, abi::CUdevice) override {
      return abi::CUDA_SUCCESS;
    }
  };
  auto configuration = with_multicast(3);
  configuration.multicast_wait = 4000;  // milliseconds, after which the emulated driver gives up
  TeamMachine machine(3, configuration, [](int rank, std::shared_ptr<driver::Interface> below) {
    return rank == 2 ? std::make_shared<Forgetful>(std::move(below)) : below;
  });
  machine.run([&](const auto& team) {
    const OwnMemory own(*team);
    auto multicast = MulticastTeam::create(team, unit, {}, soon());
    expect_failure(multicast.try_bind(0, own.memory(), 0, unit, Deadline::in(2s)), ErrorKind::timed_out,
                   {"refused by 3 of 3", "until all devices of the multicast object were added"});
    multicast.close(soon());  // waits until the driver has given up
  });
  EXPECT_TRUE(machine.nothing_live());
}

// A rank agrees to bind, and does not come back; another one is blocked. Both are named.
TEST_F(MulticastTeamTest, ARankThatNeverBindsIsNamedAndWhoIsBlockedToo) {
  BlockingMachine blocked(EntryPoint::cuMulticastBindMem);
  std::atomic<int> ended = 0;
  blocked.machine.run([&](const auto& team) {
    const OwnMemory own(*team);
    auto multicast = MulticastTeam::create(team, unit, {}, soon());
    if (team->rank() == 1) blocked.blocking->block();
    team->vote("blocks from now on", {}, soon());
    if (team->rank() == 2) {
      const Bytes same_request =
          sharing::Writer().number(std::uint64_t{0}).number(std::uint64_t{unit}).take();  // offset and size
      ASSERT_TRUE(team->try_agree("multicast: bind request", same_request, soon()));
      while (ended < 2) std::this_thread::sleep_for(1ms);
      return;
    }
    std::vector<std::string> words = {"rank 2"};
    if (team->rank() == 1) words.insert(words.end(), {"on this rank", "cuvmm-multicast"});
    expect_failure(multicast.try_bind(0, own.memory(), 0, unit, Deadline::in(1s)), ErrorKind::timed_out, words);
    ++ended;
  });
  EXPECT_FALSE(blocked.machine.nothing_live()) << "the thread is in its call";
  blocked.blocking->let_go();
  EXPECT_TRUE(blocked.nothing_live_soon());
}

// Better lost than taken from under running work.
TEST_F(MulticastTeamTest, ADestructorThatCannotWaitLeavesEverythingAsItIs) {
  const cuvmm::test::RecordingHandler reports;
  TeamMachine machine(2, with_multicast(2));
  machine.run([&](const auto& team) {
    const OwnMemory own(*team);
    driver::Interface& driver = team->device().driver().interface();
    abi::CUstream stream = nullptr;
    std::atomic<bool> go_on = false;
    {
      auto multicast = MulticastTeam::create(team, unit, {.device_wait = 50ms}, soon());
      multicast.bind(0, own.memory(), 0, unit, soon());
      if (team->rank() == 1) {
        stream = stream_that_waits(driver, go_on);
        multicast.used_on(stream);
      }
      team->vote("in use", {}, soon());
    }
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMemUnmap], team->rank() == 1 ? 0U : 1U);
    EXPECT_EQ(machine.calls(team->rank())[EntryPoint::cuMulticastUnbind], 0U)
        << "the other one leaves its own to who has the object mapped";
    go_on = true;
    if (team->rank() == 1) {
      driver.cuStreamSynchronize(stream);
      driver.cuStreamDestroy(stream);
    }
    team->vote("done", {}, soon());
  });
  ASSERT_EQ(reports.failures.size(), 1U);
  EXPECT_EQ(reports.failures.front().kind, ErrorKind::timed_out);
  EXPECT_FALSE(machine.nothing_live());
}

}  // namespace
}  // namespace cuvmm::team
