// The pool on a GPU: content, physical memory beside what is live, and stitching half of what it has.
#include "cuvmm/pool/pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "on_gpu.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::call;
using driver::EntryPoint;
using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

class PoolOnGpu : public test::OnGpu {
 protected:
  void fill(DeviceAddress address, std::size_t bytes, unsigned value, CUstream stream) {
    call<EntryPoint::cuMemsetD32Async>(api(), address.value, value, bytes / 4, stream);
  }
  void read(DeviceAddress address, unsigned* word, CUstream stream) {
    call<EntryPoint::cuMemcpyDtoHAsync>(api(), static_cast<void*>(word), address.value, sizeof(unsigned), stream);
  }
  void finish(CUstream stream) { call<EntryPoint::cuStreamSynchronize>(api(), stream); }
  [[nodiscard]] std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    call<EntryPoint::cuMemGetInfo>(api(), &free, &total);
    return free;
  }
};

// Sizes 2^16 to 2^30 with each power as likely, three quarters of what is free live.
TEST_F(PoolOnGpu, RandomRequestsTakeHardlyMorePhysicalMemoryThanIsLive) {
  const CUstream stream = this->stream();
  const std::size_t most = free_bytes() / 4 * 3;
  for (const unsigned seed : {1U, 2U}) {
    std::mt19937_64 random(seed);
    Pool pool = Pool::create(driver_);
    std::vector<std::pair<DeviceAddress, std::size_t>> live;
    std::size_t live_bytes = 0;
    const auto free_one = [&] {
      std::swap(live[random() % live.size()], live.back());
      live_bytes -= live.back().second;
      pool.free(live.back().first, stream);
      live.pop_back();
    };
    const auto begin = Clock::now();
    for (unsigned step = 0; step < 3000; ++step) {
      const auto bytes =
          static_cast<std::size_t>(std::exp2(16 + 14 * static_cast<double>(random() >> 11) / 9007199254740992.0));
      while (live_bytes + bytes > most) free_one();
      live.emplace_back(pool.allocate(bytes, stream), bytes);
      live_bytes += bytes;
      fill(live.back().first, std::min<std::size_t>(bytes, 4096), step, stream);
    }
    const double took = microseconds_since(begin);
    const PoolStatistics numbers = pool.statistics();
    const double ratio =
        static_cast<double>(numbers.peak_reserved_bytes) / static_cast<double>(numbers.peak_live_bytes);
    std::printf("seed %u: peak physical / peak live %.4f, %.1f us a step; %s\n", seed, ratio, took / 3000,
                to_string(numbers).c_str());
    EXPECT_LE(ratio, 1.03);
    while (!live.empty()) free_one();
    finish(stream);
  }
}

TEST_F(PoolOnGpu, AWarmAllocationMakesNoCallAndItsCostIsTold) {
  const CUstream stream = this->stream();
  Pool pool = Pool::create(driver_);
  for (const std::size_t bytes : {std::size_t{4096}, 1_MiB, 8_MiB, 64_MiB, 1_GiB}) {
    pool.free(pool.allocate(bytes, stream), stream);
    const auto before = pool.statistics();
    constexpr int rounds = 20'000;
    const auto begin = Clock::now();
    for (int round = 0; round < rounds; ++round) pool.free(pool.allocate(bytes, stream), stream);
    std::printf("%zu bytes: %.3f us for an allocation and its free\n", bytes, microseconds_since(begin) / rounds);
    EXPECT_EQ(pool.statistics().calls.total(), before.calls.total());
    EXPECT_EQ(pool.statistics().calls.events, before.calls.events);
  }
}

TEST_F(PoolOnGpu, HalfOfAFullPoolIsStitchedFromEverySecondPiece) {
  const CUstream stream = this->stream();
  Pool pool = Pool::create(driver_, {.budget = free_bytes() / 10 * 9 / 64_MiB * 64_MiB});
  std::vector<DeviceAddress> all;
  while (const auto got = pool.try_allocate(64_MiB, stream)) all.push_back(*got);
  for (std::size_t i = 0; i < all.size(); i += 2) pool.free(all[i], stream);
  for (std::size_t i = 1; i < all.size(); i += 2) fill(all[i], 64_MiB, static_cast<unsigned>(i), stream);
  const std::size_t half = (all.size() + 1) / 2 * 64_MiB;
  const auto before = pool.statistics();
  finish(stream);
  const auto begin = Clock::now();
  const DeviceAddress large = pool.allocate(half, stream);
  const double took = microseconds_since(begin);
  const auto after = pool.statistics();
  std::printf("%zu MiB from %llu chunks in %.0f us\n", half >> 20,
              static_cast<unsigned long long>(after.remapped - before.remapped), took);
  EXPECT_EQ(after.calls.create, before.calls.create);
  // Every chunk is moved once, but those at the ends that lie where they are wanted already.
  EXPECT_EQ(after.calls.map - before.calls.map, after.remapped - before.remapped);
  EXPECT_LE(after.remapped - before.remapped, half / 64_MiB);
  EXPECT_GE(after.remapped - before.remapped, half / 64_MiB - 2);
  fill(large, half, 77, stream);
  unsigned first = 0, last = 0;
  read(large, &first, stream);
  read(large + (half - 4), &last, stream);
  std::vector<unsigned> kept(all.size());
  for (std::size_t i = 1; i < all.size(); i += 2) read(all[i] + (64_MiB - 4), &kept[i], stream);
  finish(stream);
  EXPECT_EQ(first, 77u);
  EXPECT_EQ(last, 77u);
  for (std::size_t i = 1; i < all.size(); i += 2) EXPECT_EQ(kept[i], i);
  pool.free(large, stream);
  for (std::size_t i = 1; i < all.size(); i += 2) pool.free(all[i], stream);
}

TEST_F(PoolOnGpu, NothingIsMovedUnderASpinningKernel) {
  const CUstream spinning = stream(), other = stream();
  Pool pool = Pool::create(
      driver_,
      {.budget = 256_MiB, .reuse_wait = std::chrono::microseconds(0), .pressure_wait = std::chrono::seconds(60)});
  const DeviceAddress flag = pool.allocate(2_MiB, other), used = pool.allocate(200_MiB, spinning);
  fill(flag, 4, 0, other);
  finish(other);
  spin(flag, spinning);
  fill(used, 200_MiB, 5, spinning);
  pool.free(used, spinning);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const CurrentContext context(device_);
    const CUstream third = stream();
    fill(flag, 4, 1, third);
    finish(third);
  });
  const DeviceAddress next = pool.allocate(100_MiB, other);  // waits for the kernel
  opener.join();
  fill(next, 100_MiB, 6, other);
  finish(other);
  finish(spinning);
  pool.free(next, other);
  pool.free(flag, other);
}

TEST_F(PoolOnGpu, SixteenThreadsOnEightStreamsEach) {
  const std::size_t before = free_bytes();
  {
    Pool pool = Pool::create(driver_);
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 16; ++thread)
      threads.emplace_back([&, thread] {
        const CurrentContext context(device_);
        std::mt19937_64 random(thread);
        std::vector<CUstream> streams;
        streams.reserve(8);
        for (int count = 0; count < 8; ++count) streams.push_back(stream());
        struct Held {
          DeviceAddress address;
          std::size_t bytes;
          unsigned value;
          CUstream stream;
        };
        std::deque<Held> live;
        std::deque<std::pair<unsigned, unsigned>> seen;
        const auto free_one = [&] {
          const Held held = live.front();
          live.pop_front();
          for (const std::size_t offset : {std::size_t{0}, (held.bytes / 4 - 1) * 4}) {
            seen.emplace_back(held.value, 0);
            read(held.address + offset, &seen.back().second, held.stream);
          }
          pool.free(held.address, held.stream);
        };
        for (unsigned step = 0; step < 300; ++step) {
          const auto bytes =
              static_cast<std::size_t>(std::exp2(9 + 18 * static_cast<double>(random() >> 11) / 9007199254740992.0));
          const CUstream chosen = streams[random() % streams.size()];
          live.push_back({pool.allocate(bytes, chosen), bytes, (thread << 16U) | step, chosen});
          fill(live.back().address, bytes, live.back().value, chosen);
          if (live.size() > 8) free_one();
        }
        while (!live.empty()) free_one();
        for (const CUstream each : streams) finish(each);
        for (const auto& [wanted, got] : seen) EXPECT_EQ(got, wanted);
      });
    for (auto& each : threads) each.join();
    EXPECT_EQ(pool.statistics().live_bytes, 0u);
    EXPECT_EQ(pool.statistics().live_allocations, 0u);
  }
  EXPECT_GE(free_bytes() + 512_MiB, before) << "the driver keeps a little for streams";
}

}  // namespace
}  // namespace cuvmm
