#include "cuvmm/team/socket_bootstrap.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "cuvmm/sharing/descriptor_listener.hpp"
#include "environment.hpp"
#include "ranks.hpp"
#include "sharing/open_descriptors.hpp"
#include "team/session.hpp"

namespace cuvmm::team {
namespace {

using namespace test;

TEST(SocketBootstrap, GathersWhatEachRankHasGivenOnEveryRank) {
  for (int size = 1; size <= 8; ++size)
    run_team(size, [&](auto bootstrap) {
      EXPECT_EQ(bootstrap->size(), size);
      for (int round = 0; round < 20; ++round) {
        const std::string mine(static_cast<std::size_t>(bootstrap->rank() * round), static_cast<char>('a' + round));
        const auto all = bootstrap->allgather("round", bytes_of(mine), soon());
        ASSERT_EQ(all.size(), static_cast<std::size_t>(size));
        for (int rank = 0; rank < size; ++rank)
          EXPECT_EQ(all[static_cast<std::size_t>(rank)],
                    bytes_of(std::string(static_cast<std::size_t>(rank * round), static_cast<char>('a' + round))));
      }
    });
}

TEST(SocketBootstrap, GathersMoreThanAConnectionHolds) {
  run_team(3, [&](auto bootstrap) {
    Bytes mine(std::size_t{3} << 20, static_cast<std::byte>(bootstrap->rank()));
    mine.resize(mine.size() + static_cast<std::size_t>(bootstrap->rank()));
    const auto all = bootstrap->allgather("much", mine, soon());
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(all[rank].size(), (std::size_t{3} << 20) + rank);
      EXPECT_EQ(all[rank].front(), static_cast<std::byte>(rank));
    }
  });
}

TEST(SocketBootstrap, ABarrierLetsNobodyThroughBeforeAllHaveCome) {
  std::atomic<int> arrived = 0;
  run_team(8, [&](auto bootstrap) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      bootstrap->barrier("round", soon());
      EXPECT_GE(arrived, 8 * round);
      bootstrap->barrier("seen", soon());
    }
  });
}

TEST(SocketBootstrap, RanksMeetUnderTheirSessionAgainAndAgain) {
  const std::string session = new_session();
  const std::size_t before = cuvmm::test::open_descriptors();
  run_ranks(5, [&](int rank) {
    for (std::uint8_t round = 0; round < 40; ++round) {
      const auto bootstrap = SocketBootstrap::join({rank, 5, session}, soon());
      const std::byte mine{round};
      for (const Bytes& each : bootstrap->allgather("round", std::span(&mine, 1), soon())) EXPECT_EQ(each.at(0), mine);
    }
  });
  EXPECT_EQ(cuvmm::test::open_descriptors(), before);
}

TEST(SocketBootstrap, NamesThoseThatHaveNotCome) {
  const std::string session = new_session();
  run_ranks(4, [&](int rank) {
    if (rank == 1 || rank == 3) return;
    expect_failure(SocketBootstrap::try_join({rank, 4, session}, Deadline::in(300ms)), ErrorKind::timed_out,
                   {"have not come: 1, 3"});
  });
  // The ranks are not spoilt for a team that all come to.
  run_ranks(4, [&](int rank) { SocketBootstrap::join({rank, 4, session}, soon())->barrier("after", soon()); });
}

TEST(SocketBootstrap, NamesRankZeroWhereItHasNotCome) {
  expect_failure(SocketBootstrap::try_join({2, 4, new_session()}, Deadline::in(50ms)), ErrorKind::timed_out,
                 {"have not come: 0"});
}

// Rank 2 of four comes, and goes without a word.
void come_and_go(const std::string& session) {
  auto socket = sharing::DescriptorSocket::connect(address_of_session(session),
                                                   {.token = session, .wait_for_listener = true}, soon());
  const std::uint32_t said[] = {2, 4, 77};
  socket.send({.kind = 0xffe0, .bytes = std::as_bytes(std::span(said))}, soon());
  static_cast<void>(socket.receive(soon()));  // who is missing
}

TEST(SocketBootstrap, ARankThatGoesWhileOthersAreAwaitedIsNamedByAllHoweverLate) {
  const std::string session = new_session();
  std::atomic<bool> gone = false;
  run_ranks(4, [&](int rank) {
    if (rank == 2) {
      come_and_go(session);
      gone = true;
      return;
    }
    if (rank == 3)
      while (!gone) std::this_thread::sleep_for(1ms);
    expect_failure(SocketBootstrap::try_join({rank, 4, session}, soon()), ErrorKind::peer_gone,
                   {"rank 2 (process 77)", "has ended"});
  });
}

TEST(SocketBootstrap, ARankThatGoesWhileOthersAreAwaitedMayComeAgain) {
  const std::string session = new_session();
  std::atomic<bool> again = false;
  run_ranks(4, [&](int rank) {
    if (rank == 2) come_and_go(session);
    if (rank == 2) again = true;
    if (rank == 3) {
      while (!again) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(50ms);  // rank 2 is to be there first; else it is named, as above
    }
    const auto joined = SocketBootstrap::try_join({rank, 4, session}, soon());
    EXPECT_TRUE(joined || joined.failure().message().find("rank 2 (process 77)") != std::string::npos);
  });
}

TEST(SocketBootstrap, RefusesRanksThatDisagree) {
  const std::string session = new_session();
  run_ranks(2, [&](int rank) {
    expect_failure(SocketBootstrap::try_join({rank, 2 + rank, session}, soon()), ErrorKind::invalid_use,
                   {"same size", "says 3", "rank 0 2"});
  });
  std::atomic<int> refused = 0;
  run_ranks(3, [&](int rank) {  // two of them are rank 1 of four
    const auto joined = SocketBootstrap::try_join({rank == 0 ? 0 : 1, 4, session}, soon());
    expect_failure(joined, ErrorKind::invalid_use, {"say that they are rank 1"});
    ++refused;
  });
  EXPECT_EQ(refused, 3);
  run_ranks(2, [&](int rank) { static_cast<void>(SocketBootstrap::join({rank, 2, session}, soon())); });
}

TEST(SocketBootstrap, RefusesNumbersThatCannotBe) {
  expect_failure(SocketBootstrap::try_join({0, 0, "one"}, soon()), ErrorKind::invalid_use, {"size = 0"});
  expect_failure(SocketBootstrap::try_join({3, 3, "one"}, soon()), ErrorKind::invalid_use, {"rank = 3, size = 3"});
  expect_failure(SocketBootstrap::try_join({-1, 3, "one"}, soon()), ErrorKind::invalid_use, {"rank = -1"});
  expect_failure(SocketBootstrap::try_join({0, 2, ""}, soon()), ErrorKind::invalid_use, {"session"});
  EXPECT_TRUE(SocketBootstrap::try_join({0, 1, ""}, soon())) << "one rank needs nobody";
  EXPECT_THROW(static_cast<void>(SocketBootstrap::within_process(0)), InvalidUse);
}

TEST(SocketBootstrap, AStalledRankIsNamedByAllAndLearnsThatItIsLate) {
  for (const int size : {2, 3, 5}) {
    std::atomic<int> ended = 0;
    run_team(size, [&](auto bootstrap) {
      bootstrap->barrier("begin", soon());
      if (bootstrap->rank() == 1) {
        while (ended < size - 1) std::this_thread::sleep_for(1ms);
        expect_failure(bootstrap->try_barrier("late", soon()), ErrorKind::timed_out, {"rank 1"});
        return;
      }
      expect_failure(bootstrap->try_barrier("late", Deadline::in(100ms)), ErrorKind::timed_out,
                     {"did not come", "rank 1 (process"});
      expect_failure(bootstrap->try_barrier("again", soon()), ErrorKind::timed_out, {"rank 1"});
      ++ended;
    });
  }
}

TEST(SocketBootstrap, ARankThatLeavesIsNamedByAllOthersAtOnce) {
  for (int size = 2; size <= 8; ++size)
    for (const int leaver : {0, size - 1})
      run_team(size, [&](auto bootstrap) {
        bootstrap->barrier("begin", soon());
        if (bootstrap->rank() == leaver) return bootstrap.reset();
        expect_failure(bootstrap->try_barrier("end", soon()), ErrorKind::peer_gone,
                       {"rank " + std::to_string(leaver) + " (process", "has ended, or has left"});
      });
}

TEST(SocketBootstrap, ARankThatHasDoneItsPartMayLeave) {
  run_team(4, [](auto bootstrap) { bootstrap->barrier("only", soon()); });
}

TEST(SocketBootstrap, WhoeverGivesUpTellsTheOthersWhy) {
  run_team(3, [](auto bootstrap) {
    if (bootstrap->rank() == 2) {
      std::this_thread::sleep_for(300ms);
      bootstrap.reset();
      return;
    }
    // Only rank 0 is in a hurry; rank 1 ends with it, and names the same rank.
    const auto deadline = bootstrap->rank() == 0 ? Deadline::in(20ms) : soon();
    expect_failure(bootstrap->try_barrier("hurry", deadline), ErrorKind::timed_out, {"rank 2 (process"});
  });
}

TEST(SocketBootstrap, RanksOutOfStepAreToldWhereTheOthersAre) {
  run_team(2, [](auto bootstrap) {
    const std::string mine = bootstrap->rank() == 0 ? "left" : "right";
    const auto result = bootstrap->try_barrier(mine, soon());
    expect_failure(result, ErrorKind::invalid_use, {"'left'", "'right'"});
  });
}

TEST(SocketBootstrap, RefusesMoreThanItsLimits) {
  run_team(2, [](auto bootstrap) {
    const Bytes much(bootstrap->rank() == 0 ? (std::size_t{64} << 20) + 1 : 1);
    expect_failure(bootstrap->try_allgather("much", much, soon()), ErrorKind::invalid_use, {"at most"});
  });
}

class SocketTeamFromEnvironment : public testing::Test {
 protected:
  using Variable = cuvmm::test::EnvironmentVariable;

  static void expect_refusal(ErrorKind kind, const std::string& word) {
    try {
      static_cast<void>(SocketTeam::from_environment());
      ADD_FAILURE() << "it was not refused: " << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }

  Variable rank_{"RANK", "1"};
  Variable size_{"WORLD_SIZE", "4"};
  Variable local_{"LOCAL_WORLD_SIZE", nullptr};
  Variable address_{"MASTER_ADDR", "localhost"};
  Variable port_{"MASTER_PORT", "29500"};
  Variable run_{"TORCHELASTIC_RUN_ID", nullptr};
};

TEST_F(SocketTeamFromEnvironment, TellsRankSizeAndSession) {
  const SocketTeam team = SocketTeam::from_environment();
  EXPECT_EQ(team.rank, 1);
  EXPECT_EQ(team.size, 4);
  const Variable run("TORCHELASTIC_RUN_ID", "17");
  const SocketTeam other = SocketTeam::from_environment();
  EXPECT_NE(team.session, other.session) << "two jobs may have the same port, one after the other";
  EXPECT_EQ(SocketTeam::from_environment("mine").session, "mine");
}

TEST_F(SocketTeamFromEnvironment, RefusesWhatIsMissingOrNoNumber) {
  for (const char* const name : {"RANK", "WORLD_SIZE"})
    for (const char* const value : {static_cast<const char*>(nullptr), "", "one", "1x", "-1"}) {
      const Variable wrong(name, value);
      expect_refusal(ErrorKind::invalid_use, name);
    }
  for (const char* const name : {"MASTER_ADDR", "MASTER_PORT"}) {
    const Variable wrong(name, nullptr);
    expect_refusal(ErrorKind::invalid_use, name);
    EXPECT_EQ(SocketTeam::from_environment("mine").rank, 1) << "a session that is given needs neither";
  }
}

TEST_F(SocketTeamFromEnvironment, RefusesRanksOfOtherNodes) {
  const Variable some("LOCAL_WORLD_SIZE", "2");
  expect_refusal(ErrorKind::not_supported, "other nodes");
  const Variable all("LOCAL_WORLD_SIZE", "4");
  EXPECT_EQ(SocketTeam::from_environment().size, 4);
}

}  // namespace
}  // namespace cuvmm::team
