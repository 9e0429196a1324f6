// A rank that stalls before any step of a team's life: the others end, name it, and can form a new team at once.
#include <gtest/gtest.h>

#include <cstdlib>

#include "multicast_machine.hpp"
#include "sharing/open_descriptors.hpp"

namespace cuvmm::team {
namespace {

using namespace test;

// Waits before one operation of a rank, and gives the others little time from that operation on.
class StallingBootstrap final : public Bootstrap {
 public:
  struct Plan {
    int victim = 0;
    int operation = 1;  // counted from 1
    std::atomic<int> others_ended = 0;
  };

  // `all_operations` counts those of all ranks.
  StallingBootstrap(std::unique_ptr<Bootstrap> next, Plan& plan, std::atomic<int>* all_operations = nullptr)
      : next_(std::move(next)), plan_(plan), all_operations_(all_operations) {}

  [[nodiscard]] int rank() const noexcept override { return next_->rank(); }
  [[nodiscard]] int size() const noexcept override { return next_->size(); }
  [[nodiscard]] Result<Contributions> try_allgather(std::string_view step, std::span<const std::byte> mine,
                                                    const Deadline&) override {
    const Deadline deadline = begin();
    return next_->try_allgather(step, mine, deadline);
  }
  [[nodiscard]] Result<void> try_barrier(std::string_view step, const Deadline&) override {
    const Deadline deadline = begin();
    return next_->try_barrier(step, deadline);
  }

 private:
  Deadline begin() {
    ++operations_;
    if (all_operations_ != nullptr) ++*all_operations_;
    if (operations_ == plan_.operation && rank() == plan_.victim)
      while (plan_.others_ended < size() - 1) std::this_thread::sleep_for(1ms);
    return operations_ < plan_.operation || rank() == plan_.victim ? soon() : Deadline::in(150ms);
  }

  std::unique_ptr<Bootstrap> next_;
  Plan& plan_;
  std::atomic<int>* all_operations_;
  int operations_ = 0;
};

// What a team is, and how many operations of its bootstrap it goes through.
struct Life {
  Multicast multicast = Multicast::never;
  int operations = 24;

  [[nodiscard]] TeamMachine machine(int ranks) const {
    if (multicast == Multicast::never) return TeamMachine(ranks);
    auto configuration = with_multicast(ranks);
    configuration.multicast_wait = 1000;  // milliseconds: who binds before its time is told
    return {ranks, configuration};
  }
};

constexpr Life by_unicast{};
constexpr Life with_multicast_address{Multicast::required, 50};

// All that a team does; the first failure.
Result<void> live(const Life& life, std::unique_ptr<Bootstrap> bootstrap, const Device& device) {
  auto team = Team::try_assemble(std::move(bootstrap), device, soon());
  if (!team) return team.failure();
  auto memory = SymmetricMemory::try_create(*team, 1_MiB, {.capacity = 4_MiB, .multicast = life.multicast}, soon());
  if (!memory) return memory.failure();
  if (auto grown = memory->try_grow(2_MiB, soon()); !grown) return grown.failure();
  return memory->try_close(soon());
}

void stall(TeamMachine& machine, const Life& life, int victim, int operation) {
  StallingBootstrap::Plan plan{victim, operation};
  const std::string name = "rank " + std::to_string(victim);
  auto second = SocketBootstrap::within_process(machine.ranks());
  run_team(machine.ranks(), [&](std::unique_ptr<SocketBootstrap> bootstrap) {
    const int rank = bootstrap->rank();
    const CurrentContext context(machine.device(rank));
    const auto lived =
        live(life, std::make_unique<StallingBootstrap>(std::move(bootstrap), plan), machine.device(rank));
    // The victim learns from the others that they have given up, or that they have gone.
    if (lived)
      ADD_FAILURE() << "rank " << rank << " went on without " << name;
    else if (rank != victim)
      expect_failure(lived, ErrorKind::timed_out, {name});
    if (rank != victim) ++plan.others_ended;
    // At once, the late one too.
    const auto again = live(life, std::move(second[static_cast<std::size_t>(rank)]), machine.device(rank));
    EXPECT_TRUE(again) << again.failure().message();
  });
  EXPECT_TRUE(machine.nothing_live()) << "stalled before operation " << operation;
}

class StalledRanks : public testing::Test {
 protected:
  static void expect_operations(const Life& life) {
    TeamMachine machine = life.machine(2);
    StallingBootstrap::Plan plan{0, life.operations + 1};
    std::atomic<int> operations = 0;
    run_team(2, [&](std::unique_ptr<SocketBootstrap> bootstrap) {
      const int rank = bootstrap->rank();
      const CurrentContext context(machine.device(rank));
      auto stalling = std::make_unique<StallingBootstrap>(std::move(bootstrap), plan, &operations);
      EXPECT_TRUE(live(life, std::move(stalling), machine.device(rank)));
    });
    EXPECT_EQ(operations, 2 * life.operations);
  }
  static void stall_before_each(const Life& life, int ranks) {
    TeamMachine machine = life.machine(ranks);
    for (int operation = 1; operation <= life.operations; ++operation)
      stall(machine, life, operation % ranks, operation);
  }
  static void stall_in_teams_of_any_size(const Life& life) {
    for (int size = 2; size <= 8; ++size) {
      TeamMachine machine = life.machine(size);
      for (int operation = size - 1; operation <= life.operations; operation += 9)
        stall(machine, life, (operation + size / 2) % size, operation);
    }
  }

  const NoSwitches no_switches_{};
};

TEST_F(StalledRanks, ALifeHasThatManyOperations) {
  expect_operations(by_unicast);
}

TEST_F(StalledRanks, AreNamedByAllOthersWhereverTheyStall) {
  stall_before_each(by_unicast, 3);
}

TEST_F(StalledRanks, AreNamedInTeamsOfAnySize) {
  stall_in_teams_of_any_size(by_unicast);
}

TEST_F(StalledRanks, WithMulticastAreNamedByAllOthersWhereverTheyStall) {
  if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  expect_operations(with_multicast_address);
  stall_before_each(with_multicast_address, 3);
}

TEST_F(StalledRanks, WithMulticastAreNamedInTeamsOfAnySize) {
  if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  stall_in_teams_of_any_size(with_multicast_address);
}

// Without multicast is no way out where a rank is missing: the team is at an end.
TEST_F(StalledRanks, WithMulticastNobodyGoesOnWithoutThem) {
  if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  TeamMachine machine = with_multicast_address.machine(3);
  constexpr int first_bind = 23;  // from here on: the request, the bind, and the mapping, with two operations each
  for (int operation = first_bind; operation < first_bind + 6; ++operation) {
    StallingBootstrap::Plan plan{1, operation};
    run_team(3, [&](std::unique_ptr<SocketBootstrap> bootstrap) {
      const int rank = bootstrap->rank();
      const CurrentContext context(machine.device(rank));
      const auto team =
          Team::assemble(std::make_unique<StallingBootstrap>(std::move(bootstrap), plan), machine.device(rank), soon());
      const auto memory =
          SymmetricMemory::try_create(team, 1_MiB, {.capacity = 4_MiB, .multicast = Multicast::if_possible}, soon());
      EXPECT_FALSE(memory) << "rank " << rank << ", operation " << operation;
      if (rank == 1) return;
      expect_failure(memory, ErrorKind::timed_out, {"rank 1", "multicast"});
      ++plan.others_ended;
    });
    EXPECT_TRUE(machine.nothing_live()) << "stalled before operation " << operation;
  }
}

// Between two votes the others wait for a descriptor; then, too, the late rank alone is named.
TEST_F(StalledRanks, AreNamedWhereTheyOweADescriptor) {
  TeamMachine machine(3);
  std::atomic<int> ended = 0;
  machine.run([&](const auto& team) {
    const auto mine = SharedPhysicalMemory(PhysicalMemory::create(
        team->device().driver(),
        {.location = team->device().location(), .handle_types = HandleType::posix_file_descriptor}, 2_MiB));
    if (team->rank() == 1) {
      // It offers a handle as exchange_handles does, and comes to no more.
      const Bytes offer(9, std::byte{1});
      static_cast<void>(team->try_agree("late: offer handles", offer, soon()));
      while (ended < 2) std::this_thread::sleep_for(1ms);
      return;
    }
    expect_failure(team->try_exchange_handles("late", mine, Deadline::in(800ms)), ErrorKind::timed_out,
                   {"rank 1 (process"});
    ++ended;
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST_F(StalledRanks, TeamsThatEndBadlyTakeNothing) {
  TeamMachine machine(3);
  const int rounds = std::getenv("CUVMM_TEST_LONG") != nullptr ? 300 : 20;
  std::size_t descriptors = 0;
  for (int round = 0; round < rounds; ++round) {
    machine.run([&](const auto& team) {
      auto memory = SymmetricMemory::create(team, 1_MiB, {}, soon());
      exchange_texts(memory, 0, round);
      if (team->rank() == round % 3) return;
      expect_failure(memory.try_close(soon()), ErrorKind::peer_gone, {"rank " + std::to_string(round % 3)});
    });
    ASSERT_TRUE(machine.nothing_live());
    if (round == 0) descriptors = cuvmm::test::open_descriptors();
  }
  EXPECT_EQ(cuvmm::test::open_descriptors(), descriptors);
}

}  // namespace
}  // namespace cuvmm::team
