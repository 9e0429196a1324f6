#include "team/socket_exchange.hpp"

#include <gtest/gtest.h>

#include "ranks.hpp"

namespace cuvmm::team {
namespace {

using namespace test;

// Rank 1 of four, as it is when it has got all its connections; the other ends are the test's.
class Meeting : public testing::Test {
 protected:
  Meeting() {
    for (const std::size_t rank : {0, 2, 3}) {
      auto [end, other_end] = sharing::DescriptorSocket::pair(team_message_limits);
      peers_[rank] = Peer{std::move(end), 100 + static_cast<std::uint32_t>(rank)};
      others_[rank] = Peer{std::move(other_end), 0};
    }
  }

  [[nodiscard]] Result<Contributions> come(bool meeting = true) {
    const Operation operation{.call = "join", .step = "join", .number = 1, .rank = 1, .meeting = meeting};
    return SocketExchange(peers_, operation).run(deadline_);
  }

  void comes(std::size_t rank) {
    // It has connections to nobody but rank 1, whose part it does not await.
    const Operation operation{.call = "join", .step = "join", .number = 1, .rank = static_cast<int>(rank)};
    Peers to_one(4);
    to_one[1] = std::move(others_[rank]);
    static_cast<void>(SocketExchange(to_one, operation).run(at_once()));
    others_[rank] = std::move(to_one[1]);
  }

  void ends(std::size_t rank) { others_[rank].reset(); }

  Peers peers_{4};
  Peers others_{4};
  Deadline deadline_ = soon();
};

TEST_F(Meeting, IsThroughWhenAllHaveCome) {
  for (const std::size_t rank : {0, 2, 3}) comes(rank);
  EXPECT_TRUE(come());
}

// The end of rank 3's connection that rank 0 had yet to hand to it goes with rank 0, and may be seen to go before.
TEST_F(Meeting, DoesNotNameARankThatHadNotItsConnectionWhenRankZeroEnded) {
  ends(3);
  comes(2);
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    ends(0);
  });
  expect_failure(come(), ErrorKind::peer_gone, {"rank 0 (process 100) has ended"});
  later.join();
}

TEST_F(Meeting, NamesARankThatEndsAfterRankZeroHadHandedAllOut) {
  ends(3);
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    comes(0);
  });
  expect_failure(come(), ErrorKind::peer_gone, {"rank 3 (process 103) has ended"});
  later.join();
}

TEST_F(Meeting, NamesARankThatHasEndedWhereNothingIsHeardOfRankZero) {
  ends(3);
  deadline_ = Deadline::in(20ms);
  expect_failure(come(), ErrorKind::peer_gone, {"rank 3 (process 103) has ended"});
}

TEST_F(Meeting, DoesNotWaitForRankZeroInLaterOperations) {
  ends(3);
  expect_failure(come(false), ErrorKind::peer_gone, {"rank 3 (process 103) has ended"});
}

}  // namespace
}  // namespace cuvmm::team
