// Pools under random requests: what they cost, what is in the memory, and what is left when calls of the driver fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "pool_machine.hpp"

namespace cuvmm {
namespace {

using namespace test;

struct Held {
  DeviceAddress address{};
  std::size_t bytes = 0;
  unsigned value = 0;
};

// What lives, to be freed in any order.
class LiveSet {
 public:
  void add(DeviceAddress address, std::size_t bytes) {
    all_.push_back({address, bytes});
    bytes_ += bytes;
  }
  DeviceAddress draw(std::mt19937_64& random) {
    std::swap(all_[random() % all_.size()], all_.back());
    const Held drawn = all_.back();
    all_.pop_back();
    bytes_ -= drawn.bytes;
    return drawn.address;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::vector<Held> all_;
  std::size_t bytes_ = 0;
};

// Between 2^least and 2^most, each power as likely.
std::size_t draw_size(std::mt19937_64& random, double least, double most) {
  const double power = least + (most - least) * static_cast<double>(random() >> 11) / 9007199254740992.0;
  return static_cast<std::size_t>(std::exp2(power));
}

class PoolWalks : public testing::TestWithParam<std::uint64_t> {
 protected:
  ~PoolWalks() override { EXPECT_TRUE(handler_.take().empty()); }
  SafeRecordingHandler handler_;
};

// The goal: at most 1.03 times the peak of what is live, whatever the sizes, for few calls of the driver (C52): 2.2 to
// an allocation or a free were seen.
TEST_P(PoolWalks, PhysicalMemoryIsHardlyMoreThanWhatIsLive) {
  emulator::Configuration configuration = pool_machine(141_GiB);
  const PoolMachine machine(configuration);
  const CUstream stream = machine.stream();
  std::mt19937_64 random(GetParam());
  {
    Pool pool = Pool::create(machine.driver());
    LiveSet live;
    for (int step = 0; step < 5000; ++step) {
      const std::size_t bytes = draw_size(random, 16, 30);
      while (live.bytes() + bytes > 100_GiB) pool.free(live.draw(random), stream);
      live.add(pool.allocate(bytes, stream), bytes);
    }
    const PoolStatistics numbers = pool.statistics();
    RecordProperty("statistics", to_string(numbers));
    EXPECT_GE(numbers.peak_live_bytes, 99_GiB);
    const double ratio =
        static_cast<double>(numbers.peak_reserved_bytes) / static_cast<double>(numbers.peak_live_bytes);
    EXPECT_LE(ratio, 1.03) << to_string(numbers);
    const std::uint64_t events = 2 * numbers.allocations - numbers.live_allocations;
    EXPECT_LE(numbers.calls.total(), events * 5 / 2) << events << " events; " << to_string(numbers);
    while (live.bytes() != 0) pool.free(live.draw(random), stream);
  }
  EXPECT_TRUE(machine.nothing_live());
}

// What lives on between what passes, as in a network that is run: sizes have regions of their own, so that what lives
// on does not come to lie in larger holes. In one region for all it would be 1.065.
TEST(PoolSplinters, WhatLivesOnBetweenWhatPassesLeavesFewSplinters) {
  const PoolMachine machine(pool_machine(1_GiB));
  const CUstream stream = machine.stream();
  Pool pool = Pool::create(machine.driver());
  std::vector<DeviceAddress> kept;
  const auto passing = [&](std::size_t kibibytes) { return pool.allocate(kibibytes << 10U, stream); };
  const auto keep = [&](std::size_t kibibytes) { kept.push_back(passing(kibibytes)); };
  const auto free = [&](DeviceAddress address) { pool.free(address, stream); };
  for (int layer = 0; layer < 24; ++layer) {
    const DeviceAddress a = passing(1536), b = passing(768);
    keep(1152);
    const DeviceAddress c = passing(1536);
    free(a);
    const DeviceAddress d = passing(3072);
    keep(1152);
    free(b);
    const DeviceAddress e = passing(768);
    free(c);
    keep(4608);
    const DeviceAddress f = passing(1536);
    free(d);
    free(e);
    keep(1152);
    const DeviceAddress g = passing(768);
    free(f);
    keep(layer % 2 == 0 ? 1152 : 4608);
    free(g);
  }
  const PoolStatistics numbers = pool.statistics();
  const double ratio = static_cast<double>(numbers.peak_reserved_bytes) / static_cast<double>(numbers.peak_live_bytes);
  EXPECT_LE(ratio, 1.05) << to_string(numbers);
  for (const DeviceAddress each : kept) free(each);
}

// Never out of memory below 99 % of what the device has.
TEST_P(PoolWalks, NothingIsRefusedAsLongAsOnePercentIsLeft) {
  const PoolMachine machine(pool_machine(141_GiB));
  const CUstream stream = machine.stream();
  std::mt19937_64 random(GetParam() + 1000);
  Pool pool = Pool::create(machine.driver());
  const std::size_t most = machine.free_memory() / 100 * 99;
  LiveSet live;
  for (int step = 0; step < 4000; ++step) {
    const std::size_t bytes = draw_size(random, 16, 30);
    while (live.bytes() + bytes > most) pool.free(live.draw(random), stream);
    const auto got = pool.try_allocate(bytes, stream);
    ASSERT_TRUE(got) << "step " << step << ": " << got.failure().message();
    live.add(*got, bytes);
  }
  while (live.bytes() != 0) pool.free(live.draw(random), stream);
}

// Work on several streams that goes on in an order drawn from the seed; each word is as it was written until it is
// freed.
TEST_P(PoolWalks, NobodyWritesWhereAnotherLives) {
  PoolMachine machine(pool_machine(1_GiB, 1, emulator::Scheduler::stepped, GetParam()));
  std::mt19937_64 random(GetParam());
  std::vector<CUstream> streams;
  for (int count = 0; count < 4; ++count) streams.push_back(machine.stream());
  std::deque<std::pair<unsigned, unsigned>> seen;  // wanted, read
  {
    Pool pool = Pool::create(machine.driver(), {.budget = 512_MiB, .reuse_wait = 0us, .pressure_wait = 20s});
    std::vector<std::pair<Held, CUstream>> live;
    const auto free_one = [&] {
      std::swap(live[random() % live.size()], live.back());
      const auto [held, stream] = live.back();
      live.pop_back();
      for (const std::size_t offset : {std::size_t{0}, (held.bytes / 4 - 1) * 4}) {
        seen.emplace_back(held.value, 0);
        machine.read(held.address + offset, &seen.back().second, stream);
      }
      pool.free(held.address, stream);
    };
    for (unsigned step = 1; step < 400; ++step) {
      const std::size_t bytes = draw_size(random, 9, 27);
      while (!live.empty() && pool.statistics().live_bytes + bytes > 450_MiB) free_one();
      const CUstream stream = streams[random() % streams.size()];
      const DeviceAddress address = pool.allocate(bytes, stream);
      machine.fill(address, std::min<std::size_t>(bytes, 4096), step, stream);
      machine.fill(address + (bytes / 4 - 1) * 4, 4, step, stream);
      live.push_back({{address, bytes, step}, stream});
      if (random() % 16 == 0) machine.finish(streams[random() % streams.size()]);
    }
    while (!live.empty()) free_one();
    for (const CUstream stream : streams) machine.finish(stream);
    EXPECT_EQ(pool.statistics().live_bytes, 0u);
  }
  for (const auto& [wanted, read] : seen) EXPECT_EQ(read, wanted);
  EXPECT_TRUE(machine.nothing_live());
}

INSTANTIATE_TEST_SUITE_P(Seeds, PoolWalks, testing::Values(1, 2, 3));

class PoolThreads : public testing::TestWithParam<emulator::Scheduler> {
 protected:
  ~PoolThreads() override { EXPECT_TRUE(handler_.take().empty()); }
  SafeRecordingHandler handler_;
};

TEST_P(PoolThreads, SixteenThreadsOnEightStreamsEach) {
  PoolMachine machine(pool_machine(4_GiB, 1, GetParam(), 11));
  {
    Pool pool = Pool::create(machine.driver(), {.pressure_wait = 60s});
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 16; ++thread)
      threads.emplace_back([&, thread] {
        const CurrentContext context(machine.driver().device(DeviceOrdinal{0}));
        std::mt19937_64 random(thread);
        std::vector<CUstream> streams;
        for (int count = 0; count < 8; ++count) streams.push_back(machine.stream());
        std::deque<std::pair<unsigned, unsigned>> seen;
        std::vector<std::pair<Held, CUstream>> live;
        const auto free_one = [&] {
          const auto [held, stream] = live.front();
          live.erase(live.begin());
          seen.emplace_back(held.value, 0);
          machine.read(held.address, &seen.back().second, stream);
          seen.emplace_back(held.value, 0);
          machine.read(held.address + (held.bytes / 4 - 1) * 4, &seen.back().second, stream);
          pool.free(held.address, stream);
        };
        for (unsigned step = 0; step < 40; ++step) {
          const std::size_t bytes = draw_size(random, 9, 25.5);
          const CUstream stream = streams[random() % streams.size()];
          const Held held{pool.allocate(bytes, stream), bytes, (thread << 16U) | step};
          machine.fill(held.address, std::min<std::size_t>(bytes, 4096), held.value, stream);
          machine.fill(held.address + (bytes / 4 - 1) * 4, 4, held.value, stream);
          live.emplace_back(held, stream);
          if (live.size() > 6) free_one();
        }
        while (!live.empty()) free_one();
        for (const CUstream stream : streams) machine.finish(stream);
        for (const auto& [wanted, read] : seen) EXPECT_EQ(read, wanted);
      });
    for (auto& each : threads) each.join();
    EXPECT_EQ(pool.statistics().live_bytes, 0u);
    EXPECT_EQ(pool.statistics().live_allocations, 0u);
  }
  EXPECT_TRUE(machine.nothing_live());
}

INSTANTIATE_TEST_SUITE_P(Schedulers, PoolThreads,
                         testing::Values(emulator::Scheduler::threaded, emulator::Scheduler::stepped));

// What is given back is counted no more before others may make as much.
TEST(PoolPeaks, ThePeakOfThreadsThatLackMemoryIsWithinTheBudget) {
  PoolMachine machine(pool_machine(4_GiB));
  Pool pool = Pool::create(machine.driver(), {.budget = 128_MiB, .reuse_wait = 0us, .pressure_wait = 1ms});
  const CUstream own = machine.stream();
  std::vector<DeviceAddress> live;
  for (int count = 0; count < 2000; ++count) live.push_back(pool.allocate(512, own));
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 6; ++thread)
    threads.emplace_back([&, thread] {
      const CurrentContext context(machine.driver().device(DeviceOrdinal{0}));
      std::mt19937_64 random(thread);
      const CUstream stream = machine.stream();
      for (int step = 0; step < 300; ++step) {
        const auto got = pool.try_allocate(32_MiB + (random() % 16) * 2_MiB, stream);
        if (got) pool.free(*got, stream);
        (void)pool.statistics();  // has the lock for long, so that others meet there
        pool.trim();
      }
    });
  for (auto& each : threads) each.join();
  for (const DeviceAddress each : live) pool.free(each, own);
  machine.finish(own);
  EXPECT_LE(pool.statistics().peak_reserved_bytes, 128_MiB);
  pool.trim();
  EXPECT_EQ(pool.statistics().reserved_bytes, 0u);
  EXPECT_EQ(pool.statistics().mappings, 0u);
}

// The life of a pool, and of a private one beside it, in which each call of the driver fails once.
class PoolFaults {
 public:
  explicit PoolFaults(const driver::Fault& fault) : fault_(fault) {}

  // Whether the fault happened.
  bool run() {
    const CUstream first = machine_.stream(), second = machine_.stream();
    const std::size_t free_before = machine_.free_memory();
    machine_.faults().inject(fault_);
    {
      std::optional<Pool> pool;
      insist([&] { pool.emplace(Pool::create(machine_.driver(), {.budget = 256_MiB, .reuse_wait = 0us})); });
      std::vector<std::pair<DeviceAddress, CUstream>> live;
      for (const std::size_t bytes : {3_MiB, 100_MiB, 64_MiB, 700_KiB, 32_MiB}) {
        const CUstream stream = live.size() % 2 == 0 ? first : second;
        insist([&] { live.emplace_back(pool->allocate(bytes, stream), stream); });
      }
      insist([&] { pool->used_on(live[0].first, second); });
      for (const auto& each : live) insist([&] { pool->free(each.first, each.second); });
      live.clear();
      for (const std::size_t bytes : {150_MiB, 20_MiB, 40_MiB, 9_MiB})
        insist([&] { live.emplace_back(pool->allocate(bytes, second), second); });
      EXPECT_LE(pool->statistics().reserved_bytes, 256_MiB);
      for (const auto& each : live) insist([&] { pool->free(each.first, each.second); });
      live.clear();
      {
        std::optional<Pool> captured;
        insist([&] { captured.emplace(pool->make_private()); });
        for (const std::size_t bytes : {100_MiB, 5_MiB, 60_MiB})
          insist([&] { live.emplace_back(captured->allocate(bytes, first), first); });
        for (const auto& each : live) insist([&] { captured->free(each.first, each.second); });
      }
      EXPECT_LE(pool->statistics().reserved_bytes, 256_MiB);
      pool->trim(64_MiB);
      EXPECT_EQ(pool->statistics().live_bytes, 0u);
      EXPECT_EQ(pool->statistics().live_allocations, 0u);
    }
    const bool happened = machine_.faults().injected() != 0;
    machine_.faults().clear();
    // A driver that does not release or unmap keeps the memory; that is told.
    const auto told = handler_.take();
    if (told.empty()) {
      EXPECT_EQ(machine_.free_memory(), free_before);
      EXPECT_TRUE(machine_.nothing_live());
    }
    // What follows from that is told after it.
    if (!told.empty()) {
      EXPECT_EQ(told.front().code, CUDA_ERROR_OPERATING_SYSTEM) << told.front().message();
    }
    return happened;
  }

 private:
  template <class Step>
  static void insist(Step&& step) {
    for (int tries = 0;; ++tries) {
      try {
        return step();
      } catch (const Error&) {
        if (tries == 3) throw;
      }
    }
  }

  SafeRecordingHandler handler_;
  PoolMachine machine_{pool_machine(1_GiB)};
  driver::Fault fault_;
};

TEST(PoolFaultsTest, EachCallMayFailOnceAndNothingIsLost) {
  unsigned points = 0;
  for (std::uint64_t failing = 1;; ++failing) {
    driver::Fault fault;
    fault.call = failing;
    fault.result = CUDA_ERROR_OPERATING_SYSTEM;
    SCOPED_TRACE(testing::Message() << "call " << failing);
    if (!PoolFaults(fault).run()) break;
    ++points;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GE(points, 40u);
}

TEST(PoolFaultsTest, ALackOfMemoryAtEachCallIsAnsweredByOneAndNothingIsLost) {
  for (std::uint64_t failing = 1;; ++failing) {
    driver::Fault fault;
    fault.entry_point = EntryPoint::cuMemCreate;
    fault.call = failing;
    fault.result = CUDA_ERROR_OUT_OF_MEMORY;
    SCOPED_TRACE(testing::Message() << "cuMemCreate " << failing);
    if (!PoolFaults(fault).run()) break;
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace cuvmm
