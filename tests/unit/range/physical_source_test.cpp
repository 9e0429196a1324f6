#include "cuvmm/physical_source.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "range_machine.hpp"
#include "recording_handler.hpp"

namespace cuvmm {
namespace {

using test::EntryPoint;

const Location device0 = Location::device(DeviceOrdinal(0));

class PhysicalSourceTest : public testing::Test {
 protected:
  std::shared_ptr<PhysicalSource> source(const PhysicalSourceOptions& options = {}) {
    return PhysicalSource::create(machine_.driver(), options);
  }
  static PhysicalSourceOptions budget(std::size_t bytes, std::size_t recycle_limit = 0) {
    PhysicalSourceOptions options;
    options.budgets = {{device0, bytes}};
    options.recycle_limit = recycle_limit;
    return options;
  }

  test::RecordingHandler clean_up_;
  test::RangeMachine machine_;
};

TEST_F(PhysicalSourceTest, CreatesAndReleasesThroughTheDriver) {
  const auto from = source();
  machine_.calls();
  auto memory = from->acquire({}, 4_MiB);
  EXPECT_EQ(machine_.calls(), "cuMemCreate 1");
  EXPECT_EQ(memory.size(), 4_MiB);
  EXPECT_EQ(from->counters().live_bytes, 4_MiB);
  EXPECT_EQ(from->existing_bytes(device0), 4_MiB);
  const SharedPhysicalMemory other = memory;
  memory = {};
  EXPECT_EQ(machine_.calls(), "") << "a share is left";
  EXPECT_EQ(other.shares(), 1);
}

TEST_F(PhysicalSourceTest, RecyclesWhatWasGivenBack) {
  PhysicalSourceOptions options;
  options.recycle_limit = 8_MiB;
  const auto from = source(options);
  const auto handle = from->acquire({}, 4_MiB).memory().handle();
  EXPECT_EQ(from->counters().recyclable_bytes, 4_MiB);
  machine_.calls();
  {
    const auto again = from->acquire({}, 4_MiB);
    EXPECT_EQ(again.memory().handle(), handle);
    EXPECT_EQ(machine_.calls(), "") << "no driver call";
    EXPECT_EQ(from->counters().recycled, 1u);
    MemoryProperties compressible;
    compressible.compression = true;
    EXPECT_NE(from->acquire(compressible, 4_MiB).memory().handle(), handle);
  }
  // What does not fit under the limit pushes the oldest out.
  const auto a = from->acquire({}, 6_MiB);
  EXPECT_EQ(from->counters().recyclable_bytes, 8_MiB);
  EXPECT_EQ(from->trim(4_MiB), 4_MiB);
  EXPECT_EQ(from->counters().recyclable_bytes, 4_MiB);
  EXPECT_EQ(from->trim(), 4_MiB);
  EXPECT_EQ(machine_.alive().handles, 1u);
}

TEST_F(PhysicalSourceTest, TheRecycleLimitHoldsAndTheOldestGoFirst) {
  PhysicalSourceOptions options;
  options.recycle_limit = 6_MiB;
  const auto from = source(options);
  {
    auto oldest = from->acquire({}, 2_MiB);
    const auto newer = from->acquire({}, 4_MiB);
    const auto newest = from->acquire({}, 2_MiB);
    oldest = {};
  }  // the newest goes back first, then the newer one: 2 + 2 + 4 MiB
  EXPECT_EQ(from->counters().recyclable_bytes, 6_MiB);
  EXPECT_EQ(machine_.alive().handles, 2u);
  static_cast<void>(from->acquire({}, 8_MiB));
  EXPECT_EQ(from->counters().recyclable_bytes, 6_MiB) << "what is larger than the limit is released";
}

TEST_F(PhysicalSourceTest, DoesNotRecycleWhatIsStillMapped) {
  PhysicalSourceOptions options;
  options.recycle_limit = 1_GiB;
  const auto from = source(options);
  auto memory = from->acquire({}, 2_MiB);
  const auto range = AddressReservation::create(machine_.driver(), 2_MiB);
  {
    const auto mapping = Mapping::create(range, 0, memory.memory());
    memory = {};
    EXPECT_EQ(from->counters().recyclable_bytes, 0u);
    EXPECT_EQ(from->existing_bytes(device0), 2_MiB) << "the mapping keeps it, and the budget knows";
  }
  EXPECT_EQ(from->existing_bytes(device0), 0u);
  EXPECT_EQ(machine_.alive().handles, 0u);
}

TEST_F(PhysicalSourceTest, C45_TheBudgetSitsOnCreation) {
  const auto from = source(budget(8_MiB));
  auto first = from->acquire({}, 6_MiB);
  const auto refused = from->try_acquire({}, 4_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::out_of_device_memory);
  EXPECT_EQ(refused.failure().asked_bytes, 4_MiB);
  EXPECT_EQ(refused.failure().live_bytes, 6_MiB);
  EXPECT_NE(refused.failure().message().find("budget"), std::string::npos) << refused.failure().message();
  EXPECT_EQ(from->counters().refused, 1u);
  EXPECT_TRUE(from->try_acquire({}, 2_MiB)) << "what fits is given";
  EXPECT_FALSE(from->try_acquire({}, SIZE_MAX)) << "no overflow";
  first = {};
  EXPECT_TRUE(from->try_acquire({}, 8_MiB));
  // A budget is of a location: the host has none here.
  MemoryProperties host;
  host.location = Location::host_numa(0);
  EXPECT_TRUE(from->try_acquire(host, 64_MiB));
}

TEST_F(PhysicalSourceTest, C45_RangesCannotPassTheBudget) {
  const auto from = source(budget(8_MiB, 8_MiB));
  MappedRangeOptions options;
  options.source = from;
  options.chunks = ChunkPolicy::exact();
  options.capacity = 64_MiB;
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(6_MiB);
  EXPECT_THROW(range.append(4_MiB), OutOfDeviceMemory);
  EXPECT_THROW(range.map(32_MiB, 4_MiB), OutOfDeviceMemory);
  EXPECT_EQ(range.size(), 6_MiB);
  range.append(range.memory_at(0));  // an alias takes no memory
  EXPECT_EQ(from->existing_bytes(device0), 6_MiB);
  range.append(2_MiB);
  EXPECT_EQ(from->existing_bytes(device0), 8_MiB);
}

TEST_F(PhysicalSourceTest, ReleasesWhatWaitsForReuseBeforeItReportsALack) {
  const auto from = source(budget(8_MiB, 8_MiB));
  static_cast<void>(from->acquire({}, 2_MiB));
  static_cast<void>(from->acquire({}, 4_MiB));
  EXPECT_EQ(from->counters().recyclable_bytes, 6_MiB);
  EXPECT_TRUE(from->try_acquire({}, 8_MiB)) << "although 6 MiB of other sizes are kept";
}

TEST_F(PhysicalSourceTest, TheDriversLackIsRelievedToo) {
  PhysicalSourceOptions options;
  options.recycle_limit = 1_GiB;
  const auto from = source(options);
  static_cast<void>(from->acquire({}, 2_MiB));
  machine_.fail(EntryPoint::cuMemCreate, 1);
  EXPECT_TRUE(from->try_acquire({}, 4_MiB)) << "2 MiB were released and it was tried again";
  machine_.fail(EntryPoint::cuMemCreate, 1, abi::CUDA_ERROR_OUT_OF_MEMORY, true);
  from->trim();
  const auto refused = from->try_acquire({}, 4_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::out_of_device_memory);
  EXPECT_EQ(refused.failure().recyclable_bytes, 0u);
  EXPECT_EQ(from->existing_bytes(device0), 0u) << "nothing stays charged";
}

TEST_F(PhysicalSourceTest, AsksHooksBeforeItReportsALack) {
  const auto from = source(budget(8_MiB));
  SharedPhysicalMemory held = from->acquire({}, 6_MiB);
  std::vector<std::size_t> asked;
  {
    const auto registration = from->add_reclaim_hook([&](const ReclaimRequest& request) {
      EXPECT_EQ(request.location, device0);
      asked.push_back(request.bytes);
      held = {};
      return std::size_t{6_MiB};
    });
    EXPECT_TRUE(from->try_acquire({}, 4_MiB));
    EXPECT_EQ(asked, std::vector<std::size_t>{4_MiB});
    EXPECT_EQ(from->counters().reclaims, 1u);
    EXPECT_TRUE(from->try_acquire({}, 8_MiB));
    EXPECT_EQ(asked.size(), 1u) << "not asked where there is enough";
  }
  held = from->acquire({}, 6_MiB);
  EXPECT_FALSE(from->try_acquire({}, 4_MiB)) << "the hook is gone";
  EXPECT_EQ(asked.size(), 1u);
}

TEST_F(PhysicalSourceTest, AHookThatThrowsIsReportedAndTheNextIsAsked) {
  const auto from = source(budget(2_MiB));
  SharedPhysicalMemory held = from->acquire({}, 2_MiB);
  const auto bad = from->add_reclaim_hook([](const ReclaimRequest&) -> std::size_t { throw std::runtime_error("no"); });
  const auto good = from->add_reclaim_hook([&](const ReclaimRequest&) {
    held = {};
    return std::size_t{2_MiB};
  });
  EXPECT_TRUE(from->try_acquire({}, 2_MiB));
  ASSERT_EQ(clean_up_.failures.size(), 1u);
  EXPECT_EQ(clean_up_.failures[0].rule, "no");
  EXPECT_EQ(clean_up_.failures[0].callback, "ReclaimHook(device 0, bytes = 2097152)");
}

TEST_F(PhysicalSourceTest, GivesAllOfABatchOrNone) {
  const auto from = source(budget(8_MiB));
  const std::vector<std::size_t> sizes{2_MiB, 4_MiB, 4_MiB};
  EXPECT_FALSE(from->try_acquire_all({}, sizes));
  EXPECT_EQ(from->existing_bytes(device0), 0u);
  const auto all = from->try_acquire_all({}, std::span(sizes).first(2));
  ASSERT_TRUE(all);
  EXPECT_EQ((*all)[1].size(), 4_MiB);
}

TEST_F(PhysicalSourceTest, MemoryOutlivesItsSource) {
  PhysicalSourceOptions options;
  options.recycle_limit = 1_GiB;
  auto from = source(options);
  SharedPhysicalMemory a = from->acquire({}, 2_MiB);
  SharedPhysicalMemory b = from->acquire({}, 2_MiB);
  from.reset();
  a = {};
  EXPECT_EQ(machine_.alive().handles, 1u) << "released at once: nobody can re-use it";
  b = {};
  EXPECT_EQ(machine_.alive().handles, 0u);
}

TEST_F(PhysicalSourceTest, RefusesOptionsThatClash) {
  PhysicalSourceOptions options;
  options.budgets = {{device0, 2_MiB}, {device0, 4_MiB}};
  EXPECT_THROW(source(options), InvalidUse);
  options.budgets.pop_back();
  EXPECT_NO_THROW(source(options));
  options.budgets = {{Location::host(), 2_MiB}, {{LocationKind::host, 1}, 4_MiB}};
  EXPECT_THROW(source(options), InvalidUse) << "the host at large has no number";
  options.budgets = {{Location::host_numa(0), 2_MiB}, {Location::host_numa(1), 4_MiB}};
  EXPECT_NO_THROW(source(options));
  options.pressure_wait = std::chrono::milliseconds(-1);
  EXPECT_THROW(source(options), InvalidUse);
  options.pressure_wait = std::chrono::milliseconds::max();
  EXPECT_NO_THROW(source(options));
}

TEST_F(PhysicalSourceTest, AHookMayAskTheSource) {
  const auto from = source(budget(4_MiB));
  SharedPhysicalMemory held = from->acquire({}, 4_MiB);
  int calls = 0;
  const auto hook = from->add_reclaim_hook([&](const ReclaimRequest&) -> std::size_t {
    ++calls;
    EXPECT_FALSE(from->try_acquire({}, 2_MiB)) << "and is not asked again for that";
    held = {};
    return 4_MiB;
  });
  EXPECT_TRUE(from->try_acquire({}, 2_MiB));
  EXPECT_EQ(calls, 1);
}

TEST_F(PhysicalSourceTest, HooksOfTwoSourcesMayAskEachOther) {
  const auto one = source(budget(2_MiB));
  const auto other = source(budget(2_MiB));
  SharedPhysicalMemory of_one = one->acquire({}, 2_MiB);
  const SharedPhysicalMemory of_other = other->acquire({}, 2_MiB);
  int calls_of_one = 0;
  int calls_of_other = 0;
  const auto ask_other = one->add_reclaim_hook([&](const ReclaimRequest&) -> std::size_t {
    if (++calls_of_one < 10) {
      EXPECT_FALSE(other->try_acquire({}, 2_MiB));
    }
    of_one = {};
    return 2_MiB;
  });
  const auto ask_one = other->add_reclaim_hook([&](const ReclaimRequest&) -> std::size_t {
    if (++calls_of_other < 10) {
      EXPECT_FALSE(one->try_acquire({}, 2_MiB));
    }
    return 0;
  });
  EXPECT_TRUE(one->try_acquire({}, 2_MiB));
  EXPECT_EQ(calls_of_one, 1) << "what its hooks ask of it, by way of another, calls none again";
  EXPECT_EQ(calls_of_other, 1);
  of_one = one->acquire({}, 2_MiB);
  EXPECT_TRUE(one->try_acquire({}, 2_MiB));
  EXPECT_EQ(calls_of_one, 2) << "afterwards hooks are called as before";
  EXPECT_EQ(calls_of_other, 2);
}

TEST_F(PhysicalSourceTest, HooksMayThrowAnything) {
  const auto from = source(budget(2_MiB));
  const auto held = from->acquire({}, 2_MiB);
  const auto hook = from->add_reclaim_hook([](const ReclaimRequest&) -> std::size_t { throw 42; });
  EXPECT_FALSE(from->try_acquire({}, 2_MiB));
  EXPECT_EQ(clean_up_.failures.size(), 1u);
}

TEST_F(PhysicalSourceTest, DoesNotRecycleWhatMayHaveBeenExported) {
  PhysicalSourceOptions options;
  options.recycle_limit = 1_GiB;
  const auto from = source(options);
  MemoryProperties exportable;
  exportable.handle_types = HandleType::posix_file_descriptor;
  static_cast<void>(from->acquire(exportable, 2_MiB));
  EXPECT_EQ(from->counters().recyclable_bytes, 0u);
  static_cast<void>(from->acquire({}, 2_MiB));
  EXPECT_EQ(from->counters().recyclable_bytes, 2_MiB);
}

TEST_F(PhysicalSourceTest, TheCountersTellWhatWasThere) {
  const auto from = source(budget(4_MiB, 1_GiB));
  MemoryProperties host;
  host.location = Location::host_numa(0);
  static_cast<void>(from->acquire(host, 8_MiB));  // waits for re-use
  const auto held = from->acquire({}, 4_MiB);
  EXPECT_FALSE(from->try_acquire(host, std::size_t{1} << 50)) << "more than there is";
  EXPECT_EQ(from->counters().peak_bytes, 12_MiB) << "what could not be created was never there";
  static_cast<void>(from->acquire(host, 8_MiB));
  const auto refused = from->try_acquire({}, 2_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().live_bytes, 4_MiB);
  EXPECT_EQ(refused.failure().recyclable_bytes, 0u) << "of the device, not of the host";
}

TEST_F(PhysicalSourceTest, TheHostAtLargeIsOneLocation) {
  PhysicalSourceOptions options;
  options.budgets = {{Location::host(), 2_MiB}};
  const auto from = source(options);
  MemoryProperties numbered;
  numbered.location = {LocationKind::host, 3};
  const auto first = from->try_acquire(numbered, 2_MiB);
  EXPECT_FALSE(from->try_acquire(numbered, 2_MiB)) << "the number means nothing";
}

TEST_F(PhysicalSourceTest, QueuesMayGoWhileOthersAreRegistered) {
  const auto from = source();
  const auto other = RetireQueue::create(machine_.driver());
  std::atomic<bool> done = false;
  std::thread registering([&] {
    while (!done) from->drain_under_pressure(other);
  });
  for (int round = 0; round < 3000; ++round) {
    auto queue = RetireQueue::create(machine_.driver());
    from->drain_under_pressure(queue);
    queue->retire(from->acquire({}, 2_MiB), PendingWork());
  }
  done = true;
  registering.join();
  EXPECT_EQ(from->counters().live_bytes, 0u);
}

TEST_F(PhysicalSourceTest, ThreadsNeverPassTheBudget) {
  const auto from = source(budget(8_MiB, 4_MiB));
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<SharedPhysicalMemory> held;
      for (int round = 0; round < 300; ++round) {
        if (auto memory = from->try_acquire({}, ((t + round) % 2 + 1) * 2_MiB))
          held.push_back(std::move(memory).value());
        EXPECT_LE(from->existing_bytes(device0), 8_MiB);
        if (round % 3 != 0 && !held.empty()) held.erase(held.begin());
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(from->counters().live_bytes, 0u);
  EXPECT_LE(from->counters().peak_bytes, 8_MiB);
  from->trim();
  EXPECT_EQ(machine_.alive().handles, 0u);
}

TEST_F(PhysicalSourceTest, AnEmptyHookIsRefused) {
  const auto from = source(budget(2_MiB));
  EXPECT_THROW(static_cast<void>(from->add_reclaim_hook({})), InvalidUse);
  EXPECT_NO_THROW(static_cast<void>(from->add_reclaim_hook([](const ReclaimRequest&) { return std::size_t{0}; })));
}

TEST_F(PhysicalSourceTest, WhatWasRetainedOrExportedIsNotRecycled) {
  PhysicalSourceOptions options;
  options.recycle_limit = 1_GiB;
  const auto from = source(options);
  const CurrentContext context(machine_.driver().device(DeviceOrdinal(0)));
  const auto recyclable_after = [&](const std::function<void(DeviceAddress)>& use) {
    {
      auto range = MappedRange::create(machine_.driver(), {.capacity = 16_MiB, .source = from});
      range.append(2_MiB);
      use(range.address() + 4096);
    }
    const std::size_t bytes = from->counters().recyclable_bytes;
    from->trim();
    return bytes;
  };
  EXPECT_EQ(recyclable_after([](DeviceAddress) {}), 2_MiB);
  EXPECT_EQ(recyclable_after([&](DeviceAddress at) { static_cast<void>(describe(machine_.driver(), at)); }), 2_MiB)
      << "asking keeps nothing";
  std::optional<PhysicalMemory> retained;
  EXPECT_EQ(recyclable_after([&](DeviceAddress at) { retained = PhysicalMemory::retain(machine_.driver(), at); }), 0u);
  EXPECT_EQ(machine_.alive().handles, 1u) << "the other owner has it still";
  retained.reset();
  std::vector<DmaBuf> exported;
  EXPECT_EQ(recyclable_after([&](DeviceAddress at) { exported = dma_bufs(machine_.driver(), at, 4096); }), 0u);
  EXPECT_EQ(exported.size(), 1u);
  EXPECT_EQ(recyclable_after([](DeviceAddress) {}), 2_MiB) << "other memory is";
  EXPECT_EQ(machine_.alive().handles, 0u);
}

TEST_F(PhysicalSourceTest, AnExportWhoseMemoryCannotBeFoundIsNone) {
  PhysicalSourceOptions options;
  options.recycle_limit = 1_GiB;
  const auto from = source(options);
  const CurrentContext context(machine_.driver().device(DeviceOrdinal(0)));
  auto range = MappedRange::create(machine_.driver(), {.capacity = 16_MiB, .source = from});
  range.append(2_MiB);
  machine_.fail(EntryPoint::cuMemRetainAllocationHandle, 1, abi::CUDA_ERROR_UNKNOWN);
  machine_.calls();
  EXPECT_FALSE(try_dma_bufs(machine_.driver(), range.address(), 4096));
  EXPECT_EQ(machine_.calls().find("cuMemGetHandleForAddressRange"), std::string::npos);
  EXPECT_TRUE(try_dma_bufs(machine_.driver(), range.address(), 4096));
}

}  // namespace
}  // namespace cuvmm
