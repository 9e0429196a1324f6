// A rank that is killed before or after any step of a team's life: all others end, name it, and form a new team at
// once, for which there is memory only if nothing is left of the first one.
#include <cstdlib>

#include "../no_switches.hpp"
#include "kill_point.hpp"
#include "team_on_machine.hpp"

namespace cuvmm::team {
namespace {

using namespace tests;

constexpr int lived = 40;         // an answer: this rank's first team came to its end
constexpr int others_failed = 0;  // it did not, and the rank that was killed was named

// All that a team does. Its parts take more than half of what their device has.
Result<void> live(const SocketTeam& member, const Device& device, Multicast multicast, const Deadline& meet) {
  auto bootstrap = SocketBootstrap::try_join(member, meet);
  if (!bootstrap) return bootstrap.failure();
  auto team = Team::try_assemble(std::move(bootstrap).value(), device, soon());
  if (!team) return team.failure();
  auto memory = SymmetricMemory::try_create(*team, 768_MiB, {.capacity = 1536_MiB, .multicast = multicast}, soon());
  if (!memory) return memory.failure();
  if (auto grown = memory->try_grow(512_MiB, soon()); !grown) return grown.failure();
  return memory->try_close(soon());
}

// In a process of its own. Where a rank is killed that others only wait for, they do so until their deadline, which is
// short only in the tests of that.
int rank_of_case(const Machine& machine, SocketTeam member, Multicast multicast, int victim, const KillPoint& point,
                 const Deadline& meet) {
  use_machine(machine.settings());
  const Driver driver = Driver::wrap(std::make_shared<WatchedDriver>(Driver::emulated().shared_interface()));
  const Device device = driver.device(DeviceOrdinal(member.rank));
  if (member.rank == victim) arm(point, ::getpid());
  const auto first = live(member, device, multicast, meet);
  if (member.rank == victim) return lived;  // the point does not come that often
  if (!first) {
    const std::string message = first.failure().message();
    const bool named = message.find("rank " + std::to_string(victim) + " (process") != std::string::npos;
    const bool awaited = message.find("have not come: " + std::to_string(victim)) != std::string::npos;
    if (!(named && first.failure().kind == ErrorKind::peer_gone) &&
        !(awaited && first.failure().kind == ErrorKind::timed_out)) {
      std::fprintf(stderr, "rank %d: %s\n", member.rank, message.c_str());
      return 1;
    }
  }
  member.size -= 1;
  member.session += " again";
  if (member.rank > victim) member.rank -= 1;
  const auto second = live(member, device, multicast, soon());
  if (!second) {
    std::fprintf(stderr, "again, as rank %d: %s\n", member.rank, second.failure().message().c_str());
    return 2;
  }
  return first ? lived : others_failed;
}

class KilledRanks : public testing::Test {
 protected:
  explicit KilledRanks(const std::string& profile = "h200-580", Multicast multicast = Multicast::never)
      : multicast_(multicast), machine_("profile=" + profile + ",memory=2GiB,devices=8") {}

  // Whether the victim came to that point, and so was killed.
  bool kill(int size, int victim, const KillPoint& point, const Deadline& meet = soon()) {
    SCOPED_TRACE("rank " + std::to_string(victim) + " of " + std::to_string(size) + " killed " +
                 (point.before ? "before " : "after ") + point.step + " number " + std::to_string(point.time));
    const std::string session = machine_.path() + std::to_string(++cases_);
    const auto answers = run_processes(size, [&](int rank) {
      return rank_of_case(machine_, {rank, size, session}, multicast_, victim, point, meet);
    });
    for (int rank = 0; rank < size; ++rank) {
      const int answer = answers[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(rank == victim ? answer == -1 || answer == lived : answer == others_failed || answer == lived)
          << "rank " << rank << " answered " << answer;
    }
    return answers[static_cast<std::size_t>(victim)] == -1;
  }

  // Each time that the rank does such a step, and `stride` apart.
  void kill_at_each(int size, int victim, const std::string& step, int begin = 1, int stride = 1) {
    for (int time = begin; !HasFailure(); time += stride)
      if (!kill(size, victim, {step, time, time / stride % 2 == 0})) {
        EXPECT_GT(time, begin) << step << " was never reached";
        return;
      }
  }

  const Multicast multicast_;
  const Machine machine_;  // whose memory does not suffice if anything is left of those before
  int cases_ = 0;
};

// With a multicast object, of which nobody is to wait for a dead rank's device in the driver, and to which nobody's
// memory stays bound.
class KilledRanksWithMulticast : public KilledRanks {
 protected:
  KilledRanksWithMulticast() : KilledRanks("h200-multicast", Multicast::required) {}
  void SetUp() override {
    if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  }
  const team::test::NoSwitches no_switches_{};
};

TEST_F(KilledRanks, AtEachCallOfTheDriverAreNamedByAllOthers) {
  for (const std::string step :
       {"cuMemCreate", "cuMemExportToShareableHandle", "cuMemAddressReserve", "cuMemImportFromShareableHandle",
        "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemAddressFree"})
    for (const bool before : {true, false}) EXPECT_TRUE(kill(3, before ? 1 : 0, {step, 1, before})) << step;
  for (const std::string step : {"cuMemCreate", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess"})
    EXPECT_TRUE(kill(3, 2, {step, step == "cuMemCreate" || step == "cuMemSetAccess" ? 2 : 4, true}))
        << step << ", growing";
}

// What a rank of three says: its part of each operation, to one rank after the other.
TEST_F(KilledRanks, AtEachPartOfEachOperationAreNamedByAllOthers) {
  const bool all = std::getenv("CUVMM_TEST_LONG") != nullptr;
  kill_at_each(3, 1, "send 0xffe4", 1, all ? 1 : 3);
  kill_at_each(3, 0, "send 0xffe4", 2, all ? 1 : 7);
  kill_at_each(3, 2, "send 0xffe6");
}

TEST_F(KilledRanks, AreNamedInTeamsOfAnySize) {
  const bool all = std::getenv("CUVMM_TEST_LONG") != nullptr;
  for (int size = 2; size <= 8; ++size) {
    const int stride = (all ? 3 : 11) * (size - 1);
    kill_at_each(size, size - 1, "send 0xffe4", size, stride);
    kill_at_each(size, 0, "send 0xffe4", stride / 2 + 1, stride);
  }
}

// Rank 0 sends each two others a connection to each other. Those that come to a dead rank 0 wait for it.
TEST_F(KilledRanks, WhileTheRanksMeetAreNamedByAllOthers) {
  const auto meet = [] { return Deadline::in(std::chrono::seconds(10)); };
  for (const bool before : {true, false}) {
    EXPECT_TRUE(kill(4, 2, {"send 0xffe0", 1, before}, before ? meet() : soon()));
    EXPECT_TRUE(kill(4, 0, {"send 0xffe1", 6, before}));  // when the last one has come
    EXPECT_TRUE(kill(4, 0, {"send 0xffe2", 1, before}));
    EXPECT_TRUE(kill(4, 0, {"send 0xffe2", 4, before}));
  }
  EXPECT_TRUE(kill(3, 0, {"send 0xffe1", 1, true}, meet()));
}

TEST_F(KilledRanksWithMulticast, AtEachCallOfTheDriverAreNamedByAllOthers) {
  for (const bool before : {true, false}) {
    EXPECT_TRUE(kill(3, 0, {"cuMulticastCreate", 1, before}));
    const int victim = before ? 1 : 0;
    for (const std::string step : {"cuMulticastGetGranularity", "cuMulticastAddDevice", "cuMulticastBindMem",
                                   "cuMulticastUnbind", "cuMemAddressFree"})
      EXPECT_TRUE(kill(3, victim, {step, 1, before})) << step;
    EXPECT_TRUE(kill(3, 2, {"cuMemImportFromShareableHandle", 1, before})) << "of the object";
    EXPECT_TRUE(kill(3, 2, {"cuMemMap", 4, before})) << "of the object";
    EXPECT_TRUE(kill(3, 2, {"cuMemSetAccess", 2, before})) << "of the object";
    EXPECT_TRUE(kill(3, 2, {"cuMulticastBindMem", 2, before})) << "growing";
    EXPECT_TRUE(kill(3, 2, {"cuMemUnmap", 1, before})) << "of the object";
    EXPECT_TRUE(kill(3, 1, {"cuMulticastUnbind", 2, before}));
  }
}

TEST_F(KilledRanksWithMulticast, AtEachPartOfEachOperationAreNamedByAllOthers) {
  const bool all = std::getenv("CUVMM_TEST_LONG") != nullptr;
  kill_at_each(3, 1, "send 0xffe4", 1, all ? 1 : 7);
  kill_at_each(4, 0, "send 0xffe4", 2, all ? 1 : 19);
  kill_at_each(3, 0, "send 0xffe6", 1, all ? 1 : 3);
}

}  // namespace
}  // namespace cuvmm::team
