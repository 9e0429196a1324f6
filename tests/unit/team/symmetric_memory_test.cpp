#include "cuvmm/team/symmetric_memory.hpp"

#include <gtest/gtest.h>

#include "failing_calls.hpp"
#include "recording_handler.hpp"
#include "team_machine.hpp"

namespace cuvmm::team {
namespace {

using namespace test;
using driver::EntryPoint;

TEST(SymmetricMemory, EveryRankReachesEveryPartAtTheSameOffset) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    TeamMachine machine(ranks);
    machine.run([](const auto& team) {
      auto memory = SymmetricMemory::create(team, 3_MiB, {}, soon());
      EXPECT_EQ(memory.size(), 3_MiB);
      EXPECT_EQ(memory.stride(), 4_MiB);
      for (int rank = 0; rank < team->size(); ++rank)
        EXPECT_EQ(memory.address(rank, 17).value - memory.address(0).value,
                  static_cast<std::size_t>(rank) * memory.stride() + 17);
      for (const std::size_t offset : {std::size_t{0}, 2_MiB - 5, 3_MiB - 20}) exchange_texts(memory, offset, 1);
      // A store into another rank's part is seen there.
      const int next = (team->rank() + 1) % team->size();
      copy_to_device(memory.range(), memory.offset_in_range(next, 64), text_of(team->rank(), 7));
      team->vote("stored", {}, soon());
      const std::string expected = text_of((team->rank() + team->size() - 1) % team->size(), 7);
      EXPECT_EQ(load(memory, team->rank(), 64, expected.size()), expected);
      memory.close(soon());
      EXPECT_EQ(memory.team(), nullptr);
      EXPECT_EQ(memory.size(), 0u);
    });
    EXPECT_TRUE(machine.nothing_live());
  }
}

TEST(SymmetricMemory, GrowsInPlaceOnAllRanks) {
  TeamMachine machine(4);
  machine.run([](const auto& team) {
    auto memory = SymmetricMemory::create(team, 1_MiB, {.capacity = 32_MiB}, soon());
    const DeviceAddress before = memory.address(3);
    store(memory, 0, text_of(team->rank(), 0));
    EXPECT_EQ(memory.grow(512_KiB, soon()), 1_MiB) << "into what the chunk has left";
    EXPECT_EQ(memory.range().chunks().size(), 4u);
    EXPECT_EQ(memory.grow(4_MiB, soon()), 1536_KiB);
    EXPECT_EQ(memory.grow(10_MiB, soon()), 5632_KiB);
    EXPECT_EQ(memory.size(), 15872_KiB);
    EXPECT_EQ(memory.address(3), before);
    EXPECT_EQ(load(memory, team->rank(), 0, text_of(team->rank(), 0).size()), text_of(team->rank(), 0));
    exchange_texts(memory, 15_MiB, 1);
    // Up to the capacity, and no further; the refusal changes nothing.
    expect_failure(memory.try_grow(32_MiB, soon()), ErrorKind::invalid_use, {"capacity"});
    EXPECT_EQ(memory.grow(32_MiB - 15872_KiB, soon()), 15872_KiB);
    EXPECT_EQ(memory.size(), memory.capacity());
    exchange_texts(memory, 32_MiB - 20, 2);
    memory.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST(SymmetricMemory, IsGivenBackByDestructionAloneToo) {
  TeamMachine machine(3);
  machine.run([](const auto& team) {
    auto memory = SymmetricMemory::create(team, 1_MiB, {}, soon());
    auto other = SymmetricMemory::create(team, 5_MiB, {}, soon());
    exchange_texts(other, 4_MiB, 1);
    memory = std::move(other);
    exchange_texts(memory, 4_MiB, 2);
  });
  EXPECT_TRUE(machine.nothing_live());
}

// Two ranks may have one device, and the parts of ranks that have ended stay.
TEST(SymmetricMemory, PartsStayWhenTheirRanksHaveEnded) {
  TeamMachine machine(3);
  machine.run([](const auto& team) {
    auto memory = SymmetricMemory::create(team, 1_MiB, {}, soon());
    exchange_texts(memory, 0, 1);
    if (team->rank() == 2) return;
    for (int round = 0; round < 100; ++round) EXPECT_EQ(load(memory, 2, 0, text_of(2, 1).size()), text_of(2, 1));
    expect_failure(memory.try_grow(1_MiB, soon()), ErrorKind::peer_gone, {"rank 2 (process"});
    expect_failure(memory.try_close(soon()), ErrorKind::peer_gone, {"rank 2 (process"});
    EXPECT_EQ(load(memory, 2, 0, text_of(2, 1).size()), text_of(2, 1)) << "a failure unmaps nothing";
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST(SymmetricMemory, RefusesWhatIsNotSymmetric) {
  TeamMachine machine(3);
  machine.run([](const auto& team) {
    const auto odd = [&](std::size_t one, std::size_t others) { return team->rank() == 2 ? one : others; };
    expect_failure(SymmetricMemory::try_create(team, odd(1_MiB, 2_MiB), {}, soon()), ErrorKind::invalid_use,
                   {"rank 0: bytes = 2097152", "rank 2: bytes = 1048576"});
    expect_failure(SymmetricMemory::try_create(team, 1_MiB, {.capacity = odd(4_MiB, 8_MiB)}, soon()),
                   ErrorKind::invalid_use, {"rank 2"});
    expect_failure(SymmetricMemory::try_create(team, odd(0, 1_MiB), {}, soon()), ErrorKind::invalid_use,
                   {"rank 2", "bytes = 0"});
    expect_failure(SymmetricMemory::try_create(team, SIZE_MAX - 5, {}, soon()), ErrorKind::invalid_use, {"fit"});
    expect_failure(SymmetricMemory::try_create(team, 1_MiB, {.handle_types = HandleType::fabric}, soon()),
                   ErrorKind::not_permitted, {"refused by 3 of 3", "fabric"});
    auto memory = SymmetricMemory::create(team, 1_MiB, {.capacity = 8_MiB}, soon());
    expect_failure(memory.try_grow(odd(1_MiB, 2_MiB), soon()), ErrorKind::invalid_use, {"rank 2"});
    EXPECT_EQ(memory.grow(1_MiB, soon()), 1_MiB);
    EXPECT_THROW(static_cast<void>(memory.address(3)), InvalidUse);
    EXPECT_THROW(static_cast<void>(memory.address(-1)), InvalidUse);
    EXPECT_THROW(static_cast<void>(memory.address(0, 2_MiB + 1)), InvalidUse);
    EXPECT_EQ(memory.address(2, 2_MiB).value, memory.address(2).value + 2_MiB);
    memory.close(soon());
    expect_failure(memory.try_close(soon()), ErrorKind::invalid_use, {"owns nothing"});
    expect_failure(memory.try_grow(1, soon()), ErrorKind::invalid_use, {"owns nothing"});
    EXPECT_THROW(static_cast<void>(memory.address(0)), InvalidUse);
  });
  EXPECT_TRUE(machine.nothing_live());
}

// One rank of eight has no memory left: all are told so, and nobody keeps anything.
TEST(SymmetricMemory, ALackOfMemoryOnOneRankIsTheVerdictOfAll) {
  TeamMachine machine(8);
  machine.run([&](const auto& team) {
    SymmetricMemoryOptions options{.capacity = 64_MiB};
    if (team->rank() == 3)
      options.source =
          PhysicalSource::create(team->device().driver(), {.budgets = {{team->device().location(), 6_MiB}}});
    expect_failure(SymmetricMemory::try_create(team, 8_MiB, options, soon()), ErrorKind::out_of_device_memory,
                   {"refused by 1 of 8", "rank 3 (process", "on host"});
    team->vote("all have given it back", {}, soon());
    EXPECT_TRUE(machine.nothing_live());
    team->vote("seen", {}, soon());
    auto memory = SymmetricMemory::create(team, 4_MiB, options, soon());
    expect_failure(memory.try_grow(4_MiB, soon()), ErrorKind::out_of_device_memory, {"rank 3 (process"});
    EXPECT_EQ(memory.grow(2_MiB, soon()), 4_MiB);
    exchange_texts(memory, 6_MiB - 20, 1);
    memory.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST(SymmetricMemory, DevicesThatCannotReachEachOtherAreRefusedOnAllRanks) {
  auto configuration = cuvmm::test::machine("h200-580", 3);
  configuration.no_peer_access = {{0, 2}};
  TeamMachine machine(3, configuration);
  machine.run([](const auto& team) {
    expect_failure(SymmetricMemory::try_create(team, 1_MiB, {}, soon()), ErrorKind::not_supported,
                   {"refused by 2 of 3", "rank 0 (", "rank 2 (", "device 2"});
  });
  EXPECT_TRUE(machine.nothing_live());
}

// The emulated machine announces no multicast; that its devices reach each other is all that is needed.
TEST(SymmetricMemory, C15_NeedsNoMulticast) {
  TeamMachine machine(4);
  machine.run([](const auto& team) {
    ASSERT_FALSE(team->device().supports_multicast());
    auto memory = SymmetricMemory::create(team, 1_MiB, {.capacity = 4_MiB}, soon());
    memory.grow(2_MiB, soon());
    exchange_texts(memory, 2_MiB, 1);
    memory.close(soon());
  });
  for (int rank = 0; rank < 4; ++rank)
    for (const driver::EntryPointInfo& each : driver::entry_points)
      EXPECT_TRUE(each.group != driver::EntryPointGroup::multicast || machine.calls(rank)[each.entry_point] == 0)
          << each.name;
  EXPECT_TRUE(machine.nothing_live());
}

// A teardown that fails on one rank is told to all, and done by all once more.
TEST(SymmetricMemory, ATeardownThatFailsOnceIsToldToAllAndCanBeRepeated) {
  const cuvmm::test::RecordingHandler reports;
  for (const EntryPoint entry : {EntryPoint::cuMemUnmap, EntryPoint::cuMemAddressFree})
    for (const int failing : {0, 2}) {
      TeamMachine machine(3);
      machine.run([&](const auto& team) {
        auto memory = SymmetricMemory::create(team, 1_MiB, {}, soon());
        // Lasting, since a range tries once more by itself.
        if (team->rank() == failing) machine.faults(failing).inject({.entry_point = entry, .lasting = true});
        expect_failure(
            memory.try_close(soon()), ErrorKind::driver_failure,
            {"refused by 1 of 3", "rank " + std::to_string(failing) + " (process", std::string(driver::name(entry))});
        if (team->rank() == failing)
          machine.faults(failing).clear();
        else
          EXPECT_THROW(static_cast<void>(memory.address(0)), InvalidUse);
        expect_failure(memory.try_grow(1, soon()), ErrorKind::invalid_use, {"refused by", "owns nothing"});
        memory.close(soon());
        EXPECT_EQ(memory.team(), nullptr);
      });
      EXPECT_TRUE(machine.nothing_live()) << driver::name(entry);
    }
}

TEST(SymmetricMemory, CreationIsDoneByAllOrNoneWhicheverCallFails) {
  for (const int ranks : {2, 4}) {
    std::vector<std::optional<SymmetricMemory>> made(static_cast<std::size_t>(ranks));
    const auto mine = [&](const auto& team) -> auto& {
      return made[static_cast<std::size_t>(team->rank())];
    };
    TeamMachine machine(ranks);
    fail_at_each_call(machine, {.attempt = [&](const auto& team) -> Result<void> {
                                  auto memory = SymmetricMemory::try_create(team, 1_MiB, {}, soon());
                                  if (!memory) return memory.failure();
                                  mine(team).emplace(std::move(memory).value());
                                  return {};
                                },
                                .after =
                                    [&](const auto& team) {
                                      exchange_texts(*mine(team), 0, 1);
                                      mine(team)->close(soon());
                                      mine(team).reset();
                                    }});
  }
}

TEST(SymmetricMemory, GrowthIsDoneByAllOrNoneWhicheverCallFails) {
  std::vector<std::optional<SymmetricMemory>> made(3);
  const auto mine = [&](const auto& team) -> auto& {
    return made[static_cast<std::size_t>(team->rank())];
  };
  TeamMachine machine(3);
  fail_at_each_call(machine,
                    {.before =
                         [&](const auto& team) {
                           mine(team).emplace(SymmetricMemory::create(team, 1_MiB, {.capacity = 8_MiB}, soon()));
                           exchange_texts(*mine(team), 0, 1);
                         },
                     .attempt = [&](const auto& team) { return grow_from_1_to_4_mib(*mine(team)); },
                     .after =
                         [&](const auto& team) {
                           EXPECT_EQ(load(*mine(team), 2, 0, text_of(2, 1).size()), text_of(2, 1));
                           exchange_texts(*mine(team), 3_MiB, 2);
                           mine(team)->close(soon());
                           mine(team).reset();
                         }});
}

// What the others have mapped already is unmapped again; if that fails it is reported, and done before the next
// attempt.
TEST(SymmetricMemory, WhatCouldNotBeUndoneIsRemovedBeforeTheNextGrowth) {
  const cuvmm::test::RecordingHandler reports;
  TeamMachine machine(2);
  machine.run([&](const auto& team) {
    auto memory = SymmetricMemory::create(team, 2_MiB, {.capacity = 8_MiB}, soon());
    if (team->rank() == 0) machine.faults(0).inject({.entry_point = EntryPoint::cuMemUnmap});
    if (team->rank() == 1) machine.faults(1).inject({.entry_point = EntryPoint::cuMemMap});
    expect_failure(memory.try_grow(2_MiB, soon()), ErrorKind::driver_failure, {"rank 1 (process", "cuMemMap"});
    EXPECT_EQ(memory.size(), 2_MiB);
    EXPECT_EQ(memory.grow(2_MiB, soon()), 2_MiB);
    exchange_texts(memory, 3_MiB, 1);
    memory.close(soon());
  });
  ASSERT_EQ(reports.failures.size(), 1u);
  EXPECT_EQ(reports.failures.front().call, "cuMemUnmap");
  EXPECT_TRUE(machine.nothing_live());
}

TEST(SymmetricMemory, TheCallsMadeAreTheShortestSequence) {
  TeamMachine machine(4);
  machine.run([&](const auto& team) {
    const auto before = machine.calls(team->rank());
    auto memory = SymmetricMemory::create(team, 1_MiB, {}, soon());
    const auto after = machine.calls(team->rank());
    const auto made = [&](EntryPoint entry) { return after[entry] - before[entry]; };
    EXPECT_EQ(made(EntryPoint::cuMemCreate), 1u);
    EXPECT_EQ(made(EntryPoint::cuMemExportToShareableHandle), 1u) << "one descriptor, however many take it";
    EXPECT_EQ(made(EntryPoint::cuMemImportFromShareableHandle), 3u);
    EXPECT_EQ(made(EntryPoint::cuMemAddressReserve), 1u);
    EXPECT_EQ(made(EntryPoint::cuMemMap), 4u);
    EXPECT_EQ(made(EntryPoint::cuMemSetAccess), 1u);
    memory.close(soon());
  });
}

}  // namespace
}  // namespace cuvmm::team
