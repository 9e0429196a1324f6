#include "cuvmm/team/agreement.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "ranks.hpp"

namespace cuvmm::team {
namespace {

using namespace test;

Failure refusal(ErrorKind kind, const std::string& rule) {
  Failure failure;
  failure.kind = kind;
  failure.call = "cuMemCreate";
  failure.rule = rule;
  failure.way_out = "Free some";
  failure.asked_bytes = 4096;
  return failure;
}

// What the ranks were told, for comparing.
class Said {
 public:
  void add(const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++count_;
    said_.insert(what);
  }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t different() const { return said_.size(); }

 private:
  std::mutex mutex_;
  std::size_t count_ = 0;
  std::set<std::string> said_;
};

TEST(Agreement, AllGoOnIfAllHaveDoneTheStep) {
  for (int size = 1; size <= 8; ++size) run_team(size, [](auto bootstrap) { vote(*bootstrap, "create", {}, soon()); });
}

TEST(Agreement, OneRefusalIsTheSameVerdictForAll) {
  for (int size = 1; size <= 8; ++size) {
    Said said;
    run_team(size, [&](auto bootstrap) {
      const bool refuses = bootstrap->rank() == size - 1;
      const auto mine = refuses ? Result<void>(refusal(ErrorKind::out_of_device_memory, "no room")) : Result<void>();
      const auto verdict = try_vote(*bootstrap, "create memory", mine, soon());
      expect_failure(verdict, ErrorKind::out_of_device_memory,
                     {"step = 'create memory'", "refused by 1 of " + std::to_string(size),
                      "rank " + std::to_string(size - 1) + " (process", "on host '", "no room", "Free some"});
      EXPECT_EQ(verdict.failure().asked_bytes, std::size_t{4096});
      said.add(verdict.failure().message());
      // A refusal is no end of the team.
      vote(*bootstrap, "create less memory", {}, soon());
    });
    EXPECT_EQ(said.count(), static_cast<std::size_t>(size));
    EXPECT_EQ(said.different(), 1u);
  }
}

TEST(Agreement, SeveralRefusalsAreAllTold) {
  Said said;
  run_team(4, [&](auto bootstrap) {
    Result<void> mine;
    if (bootstrap->rank() == 1) mine = refusal(ErrorKind::not_permitted, "no channel");
    if (bootstrap->rank() == 3) mine = refusal(ErrorKind::out_of_host_memory, "no host memory");
    const auto verdict = try_vote(*bootstrap, "create", mine, soon());
    expect_failure(verdict, ErrorKind::not_permitted,
                   {"2 of 4", "rank 1 (", "no channel", "rank 3 (", "no host memory"});
    said.add(verdict.failure().message());
  });
  EXPECT_EQ(said.different(), 1u);
}

TEST(Agreement, NamesTheNodeOfAnEmulatedMachine) {
  run_team(2, [&](auto bootstrap) {
    sharing::Locality where = sharing::Locality::here();
    where.machine = "/tmp/one";
    where.node = static_cast<std::uint32_t>(bootstrap->rank() + 4);
    const auto mine =
        bootstrap->rank() == 1 ? Result<void>(refusal(ErrorKind::driver_failure, "broken")) : Result<void>();
    expect_failure(try_vote(*bootstrap, "create", mine, soon(), where), ErrorKind::driver_failure, {"emulated node 5"});
  });
}

TEST(Agreement, CarriesTheBytesOfAllWhoAgree) {
  run_team(3, [](auto bootstrap) {
    const auto all =
        try_agree(*bootstrap, "offer", bytes_of(std::string(1, static_cast<char>('a' + bootstrap->rank()))), soon());
    EXPECT_EQ(all.value(), (Contributions{bytes_of("a"), bytes_of("b"), bytes_of("c")}));
    // And of those who agree where others do not.
    const auto mine = bootstrap->rank() == 0 ? Result<Bytes>(refusal(ErrorKind::driver_failure, "broken"))
                                             : Result<Bytes>(bytes_of("mine"));
    const auto votes = try_collect_votes(*bootstrap, "offer", mine, soon()).value();
    EXPECT_FALSE(votes.unanimous());
    EXPECT_FALSE(votes.of_rank[0].said);
    EXPECT_EQ(votes.of_rank[2].said.value(), bytes_of("mine"));
  });
}

// Nobody is in a step before all have done the one before, whichever rank is slow.
TEST(Agreement, NobodyEntersAStepBeforeAllHaveDoneTheOneBefore) {
  constexpr int size = 5;
  for (int slow = 0; slow < size; ++slow) {
    std::atomic<int> done[4] = {};
    run_team(size, [&](auto bootstrap) {
      for (int step = 0; step < 4; ++step) {
        EXPECT_TRUE(step == 0 || done[step - 1] == size);
        if (bootstrap->rank() == slow) std::this_thread::sleep_for(10ms);
        ++done[step];
        vote(*bootstrap, "step", {}, soon());
      }
    });
  }
}

// A rank that ends between its vote and the next step takes nobody along who does not know of it.
TEST(Agreement, ARankThatEndsInsteadOfVotingEndsTheVoteForAll) {
  for (int leaver = 0; leaver < 4; ++leaver)
    run_team(4, [&](auto bootstrap) {
      vote(*bootstrap, "first", {}, soon());
      if (bootstrap->rank() == leaver) return bootstrap.reset();
      expect_failure(try_vote(*bootstrap, "second", {}, soon()), ErrorKind::peer_gone,
                     {"rank " + std::to_string(leaver) + " (process"});
    });
}

// It has voted yes and is gone before it knows of the others: nobody goes on without it.
TEST(Agreement, ARankThatEndsBeforeItKnowsOfAllVotesEndsTheVoteForAll) {
  run_team(3, [&](auto bootstrap) {
    if (bootstrap->rank() == 2) {
      const std::byte yes{1};
      static_cast<void>(bootstrap->allgather("only", std::span(&yes, 1), soon()));
      return bootstrap.reset();
    }
    expect_failure(try_vote(*bootstrap, "only", {}, soon()), ErrorKind::peer_gone, {"rank 2 (process"});
  });
}

TEST(Agreement, WhatIsNoVoteIsRefused) {
  run_team(2, [&](auto bootstrap) {
    if (bootstrap->rank() == 1) {
      const std::byte nonsense{7};
      static_cast<void>(bootstrap->try_allgather("only", std::span(&nonsense, 1), soon()));
      return;
    }
    expect_failure(try_vote(*bootstrap, "only", {}, soon()), ErrorKind::protocol_violation, {"rank 1"});
  });
}

}  // namespace
}  // namespace cuvmm::team
