// The barrier between ranks, step by step: every interleaving that a seeded scheduler draws, with ranks that fall
// behind at any point for as long as the others could take for three rounds.
#include "cuvmm/gpu/epoch_barrier.cuh"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cuvmm/gpu/host_memory.cuh"
#include "cuvmm/gpu/replicated_multicast.cuh"

namespace cuvmm::gpu {
namespace {

constexpr std::uint32_t most_ranks = 8;

// The counters of all ranks, and how each sees them.
struct Counters {
  Counters(std::uint32_t ranks, std::uint32_t start) : of_ranks(ranks) {
    for (Arrivals& each : of_ranks) {
      for (std::uint32_t& counter : each.of) counter = start;
      seen.push_back(&each);
    }
  }
  std::vector<Arrivals> of_ranks;
  std::vector<Arrivals*> seen;
};

// A rank that goes from barrier to barrier, one access a step.
template <class Barrier>
class Walker {
 public:
  Walker(Barrier barrier, std::uint32_t rank, std::uint32_t ranks, std::uint32_t start)
      : barrier_(std::move(barrier)), rank_(rank), ranks_(ranks), epoch_(start) {}

  [[nodiscard]] std::uint64_t entered() const { return entered_; }  // barriers that it has arrived at
  [[nodiscard]] std::uint64_t left() const { return left_; }

  void step() {
    if (is_signalling_) {
      if (peer_ == 0) {
        ++entered_;
        ++epoch_;
      }
      if (peer_ != rank_) barrier_.signal(peer_, epoch_);
      if (++peer_ == ranks_) {
        peer_ = 0;
        is_signalling_ = false;
      }
      return;
    }
    if (peer_ != rank_ && !barrier_.has_arrived(peer_, epoch_)) return;
    if (++peer_ == ranks_) {
      peer_ = 0;
      is_signalling_ = true;
      ++left_;
    }
  }

 private:
  Barrier barrier_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
  std::uint32_t epoch_;
  std::uint32_t peer_ = 0;
  bool is_signalling_ = true;
  std::uint64_t entered_ = 0;
  std::uint64_t left_ = 0;
};

enum class Walk { fine, left_too_early, stuck };

// Until every rank has left `rounds` barriers. A rank has left too early if another has not arrived there yet.
template <class Barrier>
Walk walk(std::vector<Walker<Barrier>>& walkers, std::uint64_t rounds, unsigned seed) {
  std::mt19937 random(seed);
  const auto ranks = static_cast<std::uint32_t>(walkers.size());
  const std::uint32_t three_rounds = 3 * 2 * ranks * ranks;
  std::vector<std::uint32_t> delays(ranks);
  std::uint64_t steps_since_progress = 0, furthest = 0;
  for (;;) {
    const std::uint32_t rank = random() % ranks;
    if (delays[rank] > 0) {
      --delays[rank];
    } else {
      const std::uint64_t left_before = walkers[rank].left();
      walkers[rank].step();
      if (random() % 16 == 0) delays[rank] = random() % three_rounds;
      if (walkers[rank].left() != left_before) {
        std::uint64_t least = walkers[rank].left();
        for (const auto& each : walkers) {
          if (each.entered() < walkers[rank].left()) return Walk::left_too_early;
          least = std::min(least, each.left());
        }
        if (least >= rounds) return Walk::fine;
        if (least > furthest) {
          furthest = least;
          steps_since_progress = 0;
        }
      }
    }
    if (++steps_since_progress > 100'000) return Walk::stuck;
  }
}

using Barrier = EpochBarrier<HostMemory>;
const HostMemory plain_memory;

std::vector<Walker<Barrier>> walkers_over(Counters& counters, std::uint32_t start) {
  std::vector<Walker<Barrier>> walkers;
  const auto ranks = static_cast<std::uint32_t>(counters.seen.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    walkers.emplace_back(Barrier(plain_memory, counters.seen.data(), 0, nullptr, rank, ranks), rank, ranks, start);
  return walkers;
}

std::uint64_t rounds_to_walk(std::uint32_t ranks) {
  if (std::getenv("CUVMM_TEST_LONG") == nullptr) return 20'000;
  return ranks > 4 ? 100'000 : 1'000'000;  // a round takes more steps, and delays are longer
}

TEST(EpochBarrier, NobodyLeavesBeforeAllHaveArrivedWhoeverFallsBehind) {
  for (std::uint32_t ranks = 2; ranks <= most_ranks; ranks *= 2) {
    Counters counters(ranks, 0);
    auto walkers = walkers_over(counters, 0);
    EXPECT_EQ(walk(walkers, rounds_to_walk(ranks), ranks), Walk::fine) << ranks << " ranks";
  }
}

TEST(EpochBarrier, SurvivesThatCountersRunOver) {
  for (std::uint32_t ranks = 2; ranks <= 4; ++ranks) {
    for (const std::uint32_t before : {0U, 1U, 2U, 3U, 1000U}) {
      for (const std::uint32_t boundary : {0U, 0x80000000U}) {
        Counters counters(ranks, boundary - before);
        auto walkers = walkers_over(counters, boundary - before);
        EXPECT_EQ(walk(walkers, before + 200, ranks), Walk::fine) << boundary << " - " << before;
      }
    }
  }
}

// What the test above is worth: barriers with the faults that it is to find.
class ExactBarrier {  // waits until the other is exactly where it is itself
 public:
  ExactBarrier(Counters& counters, std::uint32_t rank) : counters_(&counters), rank_(rank) {}
  void signal(std::uint32_t peer, std::uint32_t epoch) { counters_->of_ranks[peer].of[rank_] = epoch; }
  bool has_arrived(std::uint32_t peer, std::uint32_t epoch) { return counters_->of_ranks[rank_].of[peer] == epoch; }

 private:
  Counters* counters_;
  std::uint32_t rank_;
};

class SharedCountBarrier {  // one count for all ranks, of whatever round
 public:
  SharedCountBarrier(Counters& counters, std::uint32_t rank, std::uint32_t ranks)
      : counters_(&counters), rank_(rank), ranks_(ranks) {}
  void signal(std::uint32_t peer, std::uint32_t) { ++counters_->of_ranks[peer].of[0]; }
  bool has_arrived(std::uint32_t, std::uint32_t epoch) {
    return counters_->of_ranks[rank_].of[0] >= (epoch - 1) * (ranks_ - 1) + 1;
  }

 private:
  Counters* counters_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
};

class UnsignedBarrier {  // compares counters as they are
 public:
  UnsignedBarrier(Counters& counters, std::uint32_t rank) : counters_(&counters), rank_(rank) {}
  void signal(std::uint32_t peer, std::uint32_t epoch) { counters_->of_ranks[peer].of[rank_] = epoch; }
  bool has_arrived(std::uint32_t peer, std::uint32_t epoch) { return counters_->of_ranks[rank_].of[peer] >= epoch; }

 private:
  Counters* counters_;
  std::uint32_t rank_;
};

template <class Faulty, class... More>
Walk walk_faulty(std::uint32_t ranks, std::uint32_t start, More... more) {
  Counters counters(ranks, start);
  std::vector<Walker<Faulty>> walkers;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    walkers.emplace_back(Faulty(counters, rank, more...), rank, ranks, start);
  return walk(walkers, 2000, 1);
}

TEST(EpochBarrier, TheWalkFindsBarriersThatConfuseGenerations) {
  EXPECT_EQ(walk_faulty<ExactBarrier>(4, 0), Walk::stuck);
  EXPECT_EQ(walk_faulty<SharedCountBarrier>(4, 0, 4U), Walk::left_too_early);
  EXPECT_EQ(walk_faulty<UnsignedBarrier>(4, 0xFFFFFFF0U), Walk::left_too_early);
  EXPECT_EQ(walk_faulty<UnsignedBarrier>(4, 0), Walk::fine) << "as long as nothing runs over";
}

TEST(EpochBarrier, ComparesBySignOfTheDifference) {
  EXPECT_TRUE(has_reached(7, 7));
  EXPECT_TRUE(has_reached(8, 7));
  EXPECT_FALSE(has_reached(6, 7));
  EXPECT_TRUE(has_reached(0, 0xFFFFFFFF));
  EXPECT_FALSE(has_reached(0xFFFFFFFF, 0));
  EXPECT_TRUE(has_reached(0x80000000, 0x7FFFFFFF));
}

// Threads as ranks. What each wrote before a barrier the others read behind it, without any other order between them.
void meet_in_threads(Arrivals* multicast, const HostMemory& memory, Counters& counters, std::uint32_t start,
                     std::uint32_t rounds) {
  const auto ranks = static_cast<std::uint32_t>(counters.seen.size());
  std::vector<std::uint32_t> written(ranks, start);
  std::vector<std::uint32_t> missing(ranks);
  std::vector<std::uint32_t> wrong(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const EpochBarrier<HostMemory> barrier(memory, counters.seen.data(), 0, multicast, rank, ranks);
      const auto meet = [&](const EpochBarrier<HostMemory>& at, std::uint32_t now, std::uint32_t* absent) {
        constexpr std::uint64_t limit = 60'000'000'000;
        return multicast != nullptr ? at.meet_by_multicast(HostBlock(0, 1), now, limit, absent)
                                    : at.meet(HostBlock(0, 1), now, limit, absent);
      };
      std::uint32_t epoch = start;
      for (std::uint32_t round = 0; round < rounds; ++round) {
        written[rank] = round;
        if (!meet(barrier, ++epoch, &missing[rank])) return;
        for (const std::uint32_t each : written) wrong[rank] += each != round ? 1U : 0U;
        if (!meet(barrier, ++epoch, &missing[rank])) return;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(missing, std::vector<std::uint32_t>(ranks));
  EXPECT_EQ(wrong, std::vector<std::uint32_t>(ranks));
}

TEST(EpochBarrier, ThreadsSeeWhatOthersWroteBefore) {
  for (const std::uint32_t ranks : {2U, 5U}) {
    Counters counters(ranks, 0xFFFFFFF0);
    meet_in_threads(nullptr, plain_memory, counters, 0xFFFFFFF0, 300);
  }
}

TEST(EpochBarrier, ThreadsMeetByMulticast) {
  for (const std::uint32_t ranks : {2U, 5U}) {
    Counters counters(ranks, 0xFFFFFFF0);
    std::vector<std::byte*> replicas;
    for (Arrivals& each : counters.of_ranks) replicas.push_back(reinterpret_cast<std::byte*>(&each));
    auto* const multicast = reinterpret_cast<Arrivals*>(std::uintptr_t{1} << 45);  // nothing is there
    const ReplicatedMulticast behind(multicast, sizeof(Arrivals), replicas);
    const HostMemory memory(&behind);
    meet_in_threads(multicast, memory, counters, 0xFFFFFFF0, 300);
  }
}

// Its clock runs an hour a look.
class HastyMemory : public HostMemory {
 public:
  [[nodiscard]] std::uint64_t nanoseconds() const { return now_ += 3'600'000'000'000; }

 private:
  mutable std::uint64_t now_ = 0;
};

TEST(EpochBarrier, NamesWhoIsMissingWhenTheTimeIsUp) {
  Counters counters(4, 10);
  const HastyMemory memory;
  const EpochBarrier<HastyMemory> barrier(memory, counters.seen.data(), 0, nullptr, 1, 4);
  counters.of_ranks[1].of[2] = 11;  // one is here
  std::uint32_t missing = 0;
  EXPECT_FALSE(barrier.meet(HostBlock(0, 1), 11, 1, &missing));
  EXPECT_EQ(missing, 0b1001U);
  counters.of_ranks[1].of[0] = counters.of_ranks[1].of[3] = 11;
  missing = 0;
  EXPECT_TRUE(barrier.meet(HostBlock(0, 1), 11, 1, &missing));
  EXPECT_EQ(missing, 0U);
}

}  // namespace
}  // namespace cuvmm::gpu
