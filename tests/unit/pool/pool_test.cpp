#include "cuvmm/pool/pool.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuvmm/physical_memory.hpp"
#include "pool_machine.hpp"

namespace cuvmm {
namespace {

using namespace test;

// The failure, and not the success that was not expected.
template <class Step>
Failure failure_of(Step&& step) {
  try {
    step();
  } catch (const Error& error) {
    return error.failure();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

bool mentions(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class PoolTest : public testing::Test {
 protected:
  ~PoolTest() override { EXPECT_TRUE(handler_.take().empty()); }

  static PoolOptions patient() { return {.reuse_wait = 20ms, .pressure_wait = 20s}; }
  static PoolOptions hasty() { return {.reuse_wait = 0us, .pressure_wait = 50ms}; }

  SafeRecordingHandler handler_;
  PoolMachine machine_;
  CUstream stream_ = machine_.stream();
  CUstream other_ = machine_.stream();
};

TEST_F(PoolTest, GivesOutMemoryThatTheDeviceMayUseAndTakesItBack) {
  {
    Pool pool = Pool::create(machine_.driver());
    std::vector<DeviceAddress> all;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{700}, 3_MiB, 40_MiB, 100_MiB + 1}) {
      all.push_back(pool.allocate(bytes, stream_));
      EXPECT_EQ(all.back().value % 512, 0u);
      machine_.fill(all.back(), 4, 7, stream_);
      machine_.fill(all.back() + (bytes - 1) / 4 * 4, 4, 7, stream_);
      const auto found = pool.describe(all.back() + (bytes - 1));
      ASSERT_TRUE(found) << bytes;
      EXPECT_EQ(found->address, all.back());
      EXPECT_EQ(found->bytes, bytes);
      EXPECT_EQ(found->offset, bytes - 1);
      EXPECT_EQ(found->stream, stream_);
      EXPECT_GE(found->rounded_bytes, bytes);
    }
    EXPECT_EQ(pool.statistics().live_bytes, 701 + 143_MiB + 1);
    EXPECT_EQ(pool.statistics().live_allocations, 5u);
    EXPECT_GE(pool.statistics().reserved_bytes, 143_MiB);
    EXPECT_LE(pool.statistics().reserved_bytes, 150_MiB);
    for (const DeviceAddress each : all) pool.free(each, stream_);
    EXPECT_EQ(pool.statistics().live_bytes, 0u);
    EXPECT_FALSE(pool.describe(all.back()));
    EXPECT_TRUE(mentions(to_string(pool.statistics()), "5 allocations")) << to_string(pool.statistics());
  }
  EXPECT_TRUE(machine_.nothing_live());
}

TEST_F(PoolTest, C52_TheWarmPathMakesNoCallOfTheDriver) {
  Pool pool = Pool::create(machine_.driver());
  const std::vector<std::size_t> sizes{512, 5000, 1_MiB, 7_MiB, 40_MiB, 64_MiB};
  const auto round = [&] {
    std::vector<DeviceAddress> all;
    for (const std::size_t bytes : sizes) all.push_back(pool.allocate(bytes, stream_));
    for (const DeviceAddress each : all) pool.free(each, stream_);
  };
  round();
  const auto before = pool.statistics();
  machine_.calls();
  for (int count = 0; count < 100; ++count) round();
  EXPECT_EQ(machine_.calls().total(), 0u);
  const auto after = pool.statistics();
  EXPECT_EQ(after.warm - before.warm, 100 * sizes.size());
  EXPECT_EQ(after.calls.total(), before.calls.total());
}

TEST_F(PoolTest, C52_AColdLargeAllocationTakesThreeCalls) {
  Pool pool = Pool::create(machine_.driver());
  const DeviceAddress small = pool.allocate(1, stream_);
  machine_.calls();
  const DeviceAddress large = pool.allocate(1_GiB, stream_);
  const auto calls = machine_.calls();
  EXPECT_EQ(calls[EntryPoint::cuMemCreate], 1u);
  EXPECT_EQ(calls[EntryPoint::cuMemMap], 1u);
  EXPECT_EQ(calls[EntryPoint::cuMemSetAccess], 1u);
  EXPECT_EQ(calls.total(), 3u);
  pool.free(large, stream_);
  pool.free(small, stream_);
}

TEST_F(PoolTest, TheSameStreamGetsMemoryBackAtOnceAlthoughItsWorkGoesOn) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  const DeviceAddress first = pool.allocate(64_MiB, stream_);
  std::uint32_t* const word = machine_.hold(stream_);
  machine_.fill(first, 1_MiB, 1, stream_);
  pool.free(first, stream_);
  EXPECT_EQ(pool.allocate(64_MiB, stream_), first);
  const DeviceAddress another = pool.allocate(64_MiB, other_);
  EXPECT_NE(another, first);
  machine_.let_go(word, stream_);
  pool.free(first, stream_);
  pool.free(another, other_);
}

TEST_F(PoolTest, AnotherStreamGetsItWhenTheDeviceIsDone) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  for (const std::size_t bytes : {1_MiB, 64_MiB}) {
    const DeviceAddress first = pool.allocate(bytes, stream_);
    std::uint32_t* const word = machine_.hold(stream_);
    pool.free(first, stream_);
    const DeviceAddress second = pool.allocate(bytes, other_);
    EXPECT_NE(second, first) << "the first stream still works on it";
    EXPECT_GE(pool.statistics().pending_bytes, bytes);
    machine_.let_go(word, stream_);
    const DeviceAddress third = pool.allocate(bytes, other_);
    EXPECT_EQ(third, first);
    pool.free(second, other_);
    pool.free(third, other_);
    machine_.finish(other_);
    pool.trim();
  }
}

TEST_F(PoolTest, WhatOtherStreamsUseIsFreeWhenAllAreDone) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  const DeviceAddress shared = pool.allocate(64_MiB, stream_);
  pool.used_on(shared, other_);
  pool.used_on(shared, other_);
  pool.used_on(shared, stream_);
  std::uint32_t* const word = machine_.hold(other_);
  machine_.fill(shared, 1_MiB, 3, other_);
  pool.free(shared, stream_);
  const DeviceAddress next = pool.allocate(64_MiB, stream_);
  EXPECT_NE(next, shared) << "the other stream still works on it";
  machine_.let_go(word, other_);
  EXPECT_EQ(pool.allocate(64_MiB, stream_), shared);
  pool.free(shared, stream_);
  pool.free(next, stream_);
}

TEST_F(PoolTest, RefusesWhatWasNotGivenOutOrIsNotItsToFree) {
  Pool pool = Pool::create(machine_.driver());
  Pool foreign = Pool::create(machine_.driver());
  for (const std::size_t bytes : {3_MiB, 64_MiB}) {
    const DeviceAddress there = pool.allocate(bytes, stream_);
    const auto refuse = [&](Pool& asked, DeviceAddress address, CUstream stream, std::string_view part) {
      const Failure failure = failure_of([&] { asked.free(address, stream); });
      EXPECT_EQ(failure.kind, ErrorKind::invalid_use);
      EXPECT_EQ(failure.call, "Pool::free");
      EXPECT_TRUE(mentions(failure.message(), part)) << failure.message();
    };
    refuse(foreign, there, stream_, "has not given");
    refuse(pool, DeviceAddress{1234}, stream_, "has not given");
    refuse(pool, there + 512, stream_, "512 bytes inside");
    refuse(pool, there, other_, "not used on this one");
    EXPECT_EQ(pool.statistics().live_allocations, 1u);
    pool.used_on(there, other_);
    pool.free(there, other_);
    refuse(pool, there, stream_, "freed before");
    EXPECT_EQ(failure_of([&] { pool.used_on(there, stream_); }).kind, ErrorKind::invalid_use);
  }
  EXPECT_EQ(failure_of([&] { (void)pool.allocate(0, stream_); }).kind, ErrorKind::invalid_use);
  EXPECT_EQ(failure_of([&] { (void)pool.allocate(1, stream_, DeviceOrdinal{1}); }).kind, ErrorKind::invalid_use);
  EXPECT_EQ(pool.statistics().live_bytes, 0u);
}

TEST_F(PoolTest, C51_OptionsThatClashAreRefusedWhenItIsMade) {
  const auto refused = [&](PoolOptions options, std::string_view part) {
    const auto made = Pool::try_create(machine_.driver(), options);
    ASSERT_FALSE(made) << part;
    EXPECT_EQ(made.failure().kind, ErrorKind::invalid_use);
    EXPECT_TRUE(mentions(made.failure().message(), part)) << made.failure().message();
  };
  refused({.devices = {}}, "one device at least");
  refused({.devices = {DeviceOrdinal{0}, DeviceOrdinal{0}}}, "named once");
  refused({.grants = {{Location::host()}}}, "granted to the host");
  refused({.large_from = 33_MiB}, "multiple of the granularity");
  refused({.large_from = 16_MiB}, "16 times");
  refused({.reuse_wait = -1us}, "less than nothing");
  refused({.budget = 2_MiB - 1}, "not one fits");
  EXPECT_TRUE(Pool::try_create(machine_.driver(), {.budget = 2_MiB}));
  refused(
      {.budget = 2_GiB,
       .source = PhysicalSource::create(machine_.driver(), {.budgets = {{Location::device(DeviceOrdinal{0}), 1_GiB}}})},
      "more than its source has");
  EXPECT_TRUE(Pool::try_create(machine_.driver(), {.large_from = 34_MiB}));
}

TEST_F(PoolTest, WhereLargeBeginsLeavesRoomForEachRequest) {
  const std::size_t all = machine_.driver().device(DeviceOrdinal{0}).total_memory();
  for (const std::size_t refused : {all, all / 4 + 2_MiB, 40_GiB, SIZE_MAX / 2_MiB * 2_MiB}) {
    const auto made = Pool::try_create(machine_.driver(), {.large_from = refused / 2_MiB * 2_MiB});
    ASSERT_FALSE(made) << refused;
    EXPECT_EQ(made.failure().kind, ErrorKind::invalid_use);
    EXPECT_TRUE(mentions(made.failure().message(), "a quarter of the device's memory")) << made.failure().message();
  }
  const std::size_t most = all / 4 / 2_MiB * 2_MiB;
  Pool pool = Pool::create(machine_.driver(), {.large_from = most});
  std::vector<DeviceAddress> got;
  for (const std::size_t bytes : {most - 1, most, most / 2 + 1, most / 4}) got.push_back(pool.allocate(bytes, stream_));
  for (const DeviceAddress each : got) pool.free(each, stream_);
}

TEST_F(PoolTest, WhereAddressesAreScarceThereIsRoomForEachRequestStill) {
  emulator::Configuration configuration = pool_machine(256_MiB);
  const PoolMachine small(configuration);
  const CUstream stream = small.stream();
  Pool pool = Pool::create(small.driver(), {.large_from = 64_MiB});
  pool.free(pool.allocate(64_MiB - 1, stream), stream);
  pool.free(pool.allocate(64_MiB, stream), stream);
}

TEST_F(PoolTest, GrantsAreCheckedWhenThePoolIsMade) {
  emulator::Configuration configuration = pool_machine(1_GiB, 4);
  configuration.no_peer_access = {{0, 3}};
  const PoolMachine four(configuration);
  const auto device = [](int ordinal) { return Location::device(DeviceOrdinal{ordinal}); };
  const auto refused = [&](std::vector<AccessGrant> grants, ErrorKind kind, std::string_view part) {
    const auto made = Pool::try_create(four.driver(), {.grants = std::move(grants)});
    ASSERT_FALSE(made) << part;
    EXPECT_EQ(made.failure().kind, kind) << made.failure().message();
    EXPECT_EQ(made.failure().call, "Pool::create");
    EXPECT_TRUE(mentions(made.failure().message(), part)) << made.failure().message();
  };
  refused({{device(5)}}, ErrorKind::invalid_use, "4 device(s)");
  refused({{device(-1)}}, ErrorKind::invalid_use, "4 device(s)");
  refused({{device(1)}, {device(1), AccessRights::read}}, ErrorKind::invalid_use, "named once");
  refused({{device(0), AccessRights::read}}, ErrorKind::invalid_use, "may always");
  refused({{device(0), AccessRights::none}}, ErrorKind::invalid_use, "may always");
  refused({{device(3)}}, ErrorKind::not_supported, "3");
  const CUstream stream = four.stream();
  Pool pool = Pool::create(four.driver(), {.grants = {{device(0)}, {device(1)}, {device(2), AccessRights::read}}});
  pool.free(pool.allocate(1, stream), stream);
  // Of another device's memory a device of the pool may have less.
  EXPECT_TRUE(Pool::try_create(
      four.driver(), {.devices = {DeviceOrdinal{0}, DeviceOrdinal{1}}, .grants = {{device(0), AccessRights::read}}}));
}

TEST_F(PoolTest, C51_ALackOfMemoryTellsWhatExistsAndWhatIsLeft) {
  PoolOptions options = hasty();
  options.budget = 1_GiB;
  Pool pool = Pool::create(machine_.driver(), options);
  const DeviceAddress live = pool.allocate(768_MiB, stream_);
  const DeviceAddress freed = pool.allocate(128_MiB, stream_);
  pool.free(freed, stream_);
  const Failure failure = failure_of([&] { (void)pool.allocate(512_MiB, stream_); });
  EXPECT_EQ(failure.kind, ErrorKind::out_of_device_memory);
  EXPECT_EQ(failure.asked_bytes, 512_MiB);
  EXPECT_EQ(failure.rounded_bytes, 512_MiB);
  EXPECT_EQ(failure.live_bytes, 768_MiB);
  EXPECT_TRUE(failure.recyclable_bytes);
  EXPECT_TRUE(failure.largest_hole_bytes);
  EXPECT_TRUE(mentions(failure.message(), "exist for the pool")) << failure.message();
  EXPECT_TRUE(mentions(failure.message(), "larger budget")) << failure.message();
  EXPECT_TRUE(mentions(failure.message(), "the budget is 1 GiB")) << failure.message();
  const DeviceAddress fits = pool.allocate(256_MiB, stream_);  // nothing was lost by that
  pool.free(live, stream_);
  pool.free(fits, stream_);
  const DeviceAddress mended = pool.allocate(512_MiB, stream_);
  pool.free(mended, stream_);
}

TEST_F(PoolTest, C51_WhatIsLargerThanTheDeviceIsNotMendedByFreeing) {
  Pool pool = Pool::create(machine_.driver());
  const std::size_t all = machine_.driver().device(DeviceOrdinal{0}).total_memory();
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 1_MiB, all + 1}) {
    const Failure failure = failure_of([&] { (void)pool.allocate(bytes, stream_); });
    EXPECT_EQ(failure.kind, ErrorKind::out_of_device_memory);
    EXPECT_EQ(failure.asked_bytes, bytes);
    EXPECT_GE(failure.rounded_bytes.value_or(SIZE_MAX), bytes) << failure.message();
    EXPECT_EQ(failure.way_out, "Ask for less") << failure.message();
  }
  Pool limited = Pool::create(machine_.driver(), {.budget = 64_MiB});
  const Failure beyond = failure_of([&] { (void)limited.allocate(65_MiB, stream_); });
  EXPECT_TRUE(mentions(beyond.way_out, "Ask for less, or")) << beyond.message();
  limited.free(limited.allocate(64_MiB, stream_), stream_);
}

TEST_F(PoolTest, RefusalsNameTheCallThatTheProgramMade) {
  Pool pool = Pool::create(machine_.driver());
  const DeviceAddress live = pool.allocate(1, stream_);
  std::thread without_context([&] {
    const Failure null_stream = failure_of([&] { (void)pool.allocate(1, nullptr); });
    EXPECT_EQ(null_stream.call, "Pool::allocate") << null_stream.message();
    EXPECT_EQ(null_stream.kind, ErrorKind::invalid_use);
    EXPECT_EQ(failure_of([&] { pool.used_on(live, nullptr); }).call, "Pool::used_on");
  });
  without_context.join();
  pool.free(pool.allocate(1, nullptr), nullptr);
  pool.free(live, stream_);
  call<EntryPoint::cuStreamBeginCapture>(machine_.api(), stream_, CU_STREAM_CAPTURE_MODE_GLOBAL);
  const Failure captured = failure_of([&] { pool.forget(stream_); });
  EXPECT_EQ(captured.call, "Pool::forget") << captured.message();
  CUgraph graph = nullptr;
  ASSERT_EQ(machine_.api().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  call<EntryPoint::cuGraphDestroy>(machine_.api(), graph);
  pool.forget(stream_);
}

TEST_F(PoolTest, AnotherThreadsStreamIsNotTakenForItsOwn) {
  Pool pool = Pool::create(machine_.driver());
  const CUstream own = abi::per_thread_stream();
  const DeviceAddress address = pool.allocate(1, own);
  std::thread other([&] {
    const CurrentContext context(machine_.driver().device(DeviceOrdinal{0}));
    const Failure failure = failure_of([&] { pool.free(address, own); });
    EXPECT_TRUE(mentions(failure.rule, "another thread's stream")) << failure.message();
    EXPECT_TRUE(mentions(failure.way_out, "in the thread that allocated it")) << failure.message();
  });
  other.join();
  pool.free(address, own);
}

TEST_F(PoolTest, C51_ALackOfMemoryOfTheDeviceTellsWhatThatHasFree) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  const std::size_t others = machine_.free_memory() / 2_MiB * 2_MiB - 64_MiB;
  auto taken = PhysicalMemory::create(machine_.driver(), {.location = Location::device(DeviceOrdinal{0})}, others);
  const Failure failure = failure_of([&] { (void)pool.allocate(66_MiB, stream_); });
  EXPECT_EQ(failure.kind, ErrorKind::out_of_device_memory);
  ASSERT_TRUE(failure.free_bytes);
  EXPECT_EQ(*failure.free_bytes / 2_MiB, 32u);
  EXPECT_FALSE(mentions(failure.message(), "budget")) << failure.message();
  EXPECT_TRUE(mentions(failure.message(), "that others hold at the device")) << failure.message();
  pool.free(pool.allocate(64_MiB, stream_), stream_);
}

TEST_F(PoolTest, C43_ARequestThatIsServedInPartGivesAllBackAndABudgetIsNeverPassed) {
  PoolOptions options = hasty();
  options.budget = 256_MiB;
  Pool pool = Pool::create(machine_.driver(), options);
  Pool sharer = pool.make_private();
  std::vector<std::thread> threads;
  std::atomic<std::size_t> got = 0;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      const CurrentContext context(machine_.driver().device(DeviceOrdinal{0}));
      Pool& mine = thread % 2 == 0 ? pool : sharer;
      const CUstream stream = machine_.stream();
      for (int count = 0; count < 8; ++count)
        if (mine.try_allocate(34_MiB, stream)) ++got;
      const std::size_t exist = pool.statistics().reserved_bytes + sharer.statistics().reserved_bytes;
      EXPECT_LE(exist, 256_MiB);
    });
  for (auto& each : threads) each.join();
  EXPECT_EQ(got, 7u) << "as many as fit, and none is lost";
  EXPECT_EQ(pool.statistics().reserved_bytes + sharer.statistics().reserved_bytes, 7 * 34_MiB);
  for (Pool* each : {&pool, &sharer}) {
    for (std::size_t tries = 0; tries < 2; ++tries) EXPECT_FALSE(each->try_allocate(34_MiB, stream_));
  }
  EXPECT_EQ(pool.statistics().reserved_bytes + sharer.statistics().reserved_bytes, 7 * 34_MiB);
  // They are live, which is told.
  { const Pool gone = std::move(pool), too = std::move(sharer); }
  EXPECT_GE(handler_.take().size(), 1u);
}

// Every second piece of a full card of 141 GiB is freed, and all of that serves one allocation, without a copy.
TEST_F(PoolTest, FragmentationTorture_HalfOfAFullCardIsStitchedFromEverySecondPiece) {
  PoolMachine card(pool_machine(141_GiB));
  const CUstream stream = card.stream();
  {
    Pool pool = Pool::create(card.driver(), patient());
    const std::size_t bytes = card.free_memory();
    std::vector<DeviceAddress> all;
    while (const auto got = pool.try_allocate(64_MiB, stream)) all.push_back(*got);
    EXPECT_GT((all.size() + 1) * 64_MiB, bytes);
    for (std::size_t i = 0; i < all.size(); i += 2) pool.free(all[i], stream);
    card.calls();
    const auto before = pool.statistics();
    const std::size_t pieces = (all.size() + 1) / 2, half = pieces * 64_MiB;
    EXPECT_GT(half, bytes / 100 * 49);
    const DeviceAddress large = pool.allocate(half, stream);
    const auto calls = card.calls();
    EXPECT_EQ(calls[EntryPoint::cuMemCreate], 0u);
    EXPECT_EQ(calls[EntryPoint::cuMemcpyDtoDAsync], 0u);
    EXPECT_EQ(calls[EntryPoint::cuMemMap], pieces - 1) << "one stays where it is";
    EXPECT_EQ(calls[EntryPoint::cuMemUnmap], pieces - 1);
    EXPECT_EQ(calls[EntryPoint::cuMemSetAccess], 1u);
    EXPECT_EQ(pool.statistics().remapped - before.remapped, pieces - 1);
    EXPECT_EQ(pool.statistics().mappings, before.mappings);
    EXPECT_EQ(pool.statistics().reserved_bytes, before.reserved_bytes);
    RecordProperty("mappings", static_cast<int>(pieces));
    card.fill(large, 4096, 9, stream);
    card.fill(large + (half - 4096), 4096, 9, stream);
    unsigned first = 0, last = 0;
    card.read(large, &first, stream);
    card.read(large + (half - 4), &last, stream);
    card.finish(stream);
    EXPECT_EQ(first, 9u);
    EXPECT_EQ(last, 9u);
    pool.free(large, stream);
    for (std::size_t i = 1; i < all.size(); i += 2) pool.free(all[i], stream);
  }
  EXPECT_TRUE(card.nothing_live());
}

TEST_F(PoolTest, WhatIsFreeIsExtendedWhereItLiesAtEitherEnd) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  const DeviceAddress first = pool.allocate(64_MiB, stream_);
  pool.free(first, stream_);
  machine_.calls();
  const auto expect_added = [&](unsigned maps) {
    const auto calls = machine_.calls();
    EXPECT_EQ(calls[EntryPoint::cuMemMap], maps);
    EXPECT_EQ(calls[EntryPoint::cuMemSetAccess], maps);
    EXPECT_EQ(calls[EntryPoint::cuMemUnmap], 0u);
    EXPECT_EQ(calls[EntryPoint::cuMemRelease], 0u);
  };
  const DeviceAddress behind = pool.allocate(96_MiB, stream_);
  EXPECT_EQ(behind, first);
  expect_added(1);
  machine_.fill(behind + 92_MiB, 4_MiB, 3, stream_);
  const DeviceAddress wall = pool.allocate(32_MiB, stream_);
  machine_.calls();
  pool.free(behind, stream_);
  const DeviceAddress cut = pool.allocate(64_MiB, stream_);
  EXPECT_EQ(cut, first) << "its first chunk, by itself";
  expect_added(0);
  const DeviceAddress larger = pool.allocate(40_MiB, stream_);
  EXPECT_EQ(larger, first + 64_MiB) << "its other one, and more behind it";
  expect_added(1);
  machine_.finish(stream_);
  for (const DeviceAddress each : {wall, cut, larger}) pool.free(each, stream_);
}

TEST_F(PoolTest, AnExtensionThatFailsLeavesWhatWasFree) {
  PoolOptions options = hasty();
  options.budget = 128_MiB;
  Pool pool = Pool::create(machine_.driver(), options);
  const DeviceAddress live = pool.allocate(32_MiB, stream_), freed = pool.allocate(64_MiB, stream_);
  pool.free(freed, stream_);
  EXPECT_FALSE(pool.try_allocate(100_MiB, stream_));
  machine_.calls();
  EXPECT_EQ(pool.allocate(64_MiB, stream_), freed);
  EXPECT_EQ(machine_.calls()[EntryPoint::cuMemMap], 0u);
  pool.free(freed, stream_);
  const DeviceAddress fits = pool.allocate(96_MiB, other_);
  pool.free(fits, other_);
  pool.free(live, stream_);
}

TEST_F(PoolTest, FreeMemoryIsNotMovedUnderWork) {
  PoolOptions options = hasty();
  options.budget = 128_MiB;
  Pool pool = Pool::create(machine_.driver(), options);
  const DeviceAddress first = pool.allocate(128_MiB, stream_);
  std::uint32_t* const word = machine_.hold(stream_);
  machine_.fill(first, 1_MiB, 1, stream_);
  pool.free(first, stream_);
  EXPECT_FALSE(pool.try_allocate(100_MiB, other_));
  EXPECT_EQ(pool.trim(), 0u);
  machine_.let_go(word, stream_);
  const DeviceAddress second = pool.allocate(100_MiB, other_);
  pool.free(second, other_);
}

TEST_F(PoolTest, TrimsInStepsToATarget) {
  Pool pool = Pool::create(machine_.driver());
  const std::size_t before = machine_.free_memory();
  std::vector<DeviceAddress> all;
  for (int count = 0; count < 8; ++count) all.push_back(pool.allocate(64_MiB, stream_));
  const DeviceAddress kept = pool.allocate(64_MiB, stream_);
  for (const DeviceAddress each : all) pool.free(each, stream_);
  EXPECT_EQ(pool.statistics().reserved_bytes, 9 * 64_MiB);
  EXPECT_EQ(pool.trim(5 * 64_MiB, 64_MiB), 64_MiB);
  EXPECT_EQ(pool.trim(5 * 64_MiB), 3 * 64_MiB);
  EXPECT_EQ(pool.trim(5 * 64_MiB), 0u);
  EXPECT_EQ(pool.statistics().recyclable_bytes, 4 * 64_MiB);
  EXPECT_EQ(pool.trim(), 4 * 64_MiB);
  EXPECT_EQ(machine_.free_memory(), before - 64_MiB);
  pool.free(kept, stream_);
  EXPECT_EQ(pool.trim(), 64_MiB);
  EXPECT_EQ(machine_.free_memory(), before);
}

TEST_F(PoolTest, TrimsNoMoreThanIsAskedForButForTheRestOfAChunk) {
  Pool pool = Pool::create(machine_.driver());
  std::vector<DeviceAddress> all;
  for (const std::size_t bytes : {512_MiB, 256_MiB, 64_MiB, 32_MiB}) all.push_back(pool.allocate(bytes, stream_));
  const std::size_t whole = 864_MiB;
  for (const DeviceAddress each : all) pool.free(each, stream_);
  machine_.finish(stream_);
  EXPECT_EQ(pool.trim(whole), 0u);
  EXPECT_EQ(pool.trim(whole + 1), 0u);
  EXPECT_EQ(pool.trim(0, 0), 0u);
  EXPECT_EQ(pool.trim(whole - 1), 32_MiB) << "the smallest that is enough";
  EXPECT_EQ(pool.trim(0, 33_MiB), 64_MiB);
  EXPECT_EQ(pool.trim(500_MiB), 512_MiB) << "one that is enough, before two";
  EXPECT_EQ(pool.statistics().reserved_bytes, 256_MiB);
  EXPECT_EQ(pool.trim(), 256_MiB);
}

TEST_F(PoolTest, OthersWhoLackMemoryGetWhatIsFree) {
  const auto source =
      PhysicalSource::create(machine_.driver(), {.budgets = {{Location::device(DeviceOrdinal{0}), 256_MiB}}});
  Pool pool = Pool::create(machine_.driver(), {.source = source});
  pool.free(pool.allocate(200_MiB, stream_), stream_);
  EXPECT_TRUE(source->try_acquire({.location = Location::device(DeviceOrdinal{0})}, 128_MiB));
  EXPECT_LE(pool.statistics().reserved_bytes, 128_MiB);
}

TEST_F(PoolTest, LargeMemoryServesSmallRequestsAndBack) {
  PoolOptions options = patient();
  options.budget = 256_MiB;
  Pool pool = Pool::create(machine_.driver(), options);
  for (int round = 0; round < 3; ++round) {
    const DeviceAddress large = pool.allocate(256_MiB, stream_);
    machine_.fill(large, 4096, 1, stream_);
    pool.free(large, stream_);
    std::vector<DeviceAddress> small;
    for (int count = 0; count < 50; ++count) small.push_back(pool.allocate(5_MiB, stream_));
    for (const DeviceAddress each : small) machine_.fill(each, 4096, 2, stream_);
    for (const DeviceAddress each : small) pool.free(each, stream_);
  }
  EXPECT_LE(pool.statistics().peak_reserved_bytes, 256_MiB);
}

TEST_F(PoolTest, AStreamThatIsForgottenLeavesItsMemoryToTheOthers) {
  Pool pool = Pool::create(machine_.driver(), patient());
  const CUstream passing = machine_.stream();
  const DeviceAddress first = pool.allocate(64_MiB, passing);
  EXPECT_EQ(failure_of([&] { pool.forget(passing); }).kind, ErrorKind::invalid_use);
  pool.free(first, passing);
  const DeviceAddress used = pool.allocate(1_MiB, stream_);
  pool.used_on(used, passing);
  EXPECT_EQ(failure_of([&] { pool.forget(passing); }).kind, ErrorKind::invalid_use);
  pool.free(used, stream_);
  pool.forget(passing);
  pool.forget(passing);
  call<EntryPoint::cuStreamDestroy>(machine_.api(), passing);
  EXPECT_EQ(pool.allocate(64_MiB, stream_), first);
  pool.free(first, stream_);
}

TEST_F(PoolTest, AStreamThatWasDestroyedUnforgottenIsNamedAtOnceAndForgettingItFreesItsMemory) {
  PoolOptions options;
  options.budget = 64_MiB;
  options.pressure_wait = 1h;
  Pool pool = Pool::create(machine_.driver(), options);
  const CUstream passing = machine_.stream();
  const DeviceAddress shared = pool.allocate(1_MiB, stream_);
  pool.used_on(shared, passing);
  pool.free(pool.allocate(48_MiB, passing), passing);
  call<EntryPoint::cuStreamDestroy>(machine_.api(), passing);
  const Failure failure = failure_of([&] { (void)pool.allocate(64_MiB - 2_MiB, other_); });
  EXPECT_EQ(failure.kind, ErrorKind::out_of_device_memory);
  EXPECT_TRUE(mentions(failure.message(), "Destroyed without forget()")) << failure.message();
  EXPECT_TRUE(mentions(failure.message(), fmt::format("{}", fmt::ptr(passing)))) << failure.message();
  EXPECT_TRUE(mentions(failure.way_out, "Call forget()")) << failure.message();
  pool.free(shared, stream_);
  pool.forget(passing);
  machine_.finish(stream_);
  const DeviceAddress again = pool.allocate(62_MiB, other_);
  pool.free(again, other_);
  machine_.finish(other_);
  const DeviceAddress all = pool.allocate(64_MiB, stream_);
  const Failure full = failure_of([&] { (void)pool.allocate(2_MiB, other_); });
  EXPECT_FALSE(mentions(full.message(), "Destroyed")) << full.message();
  pool.free(all, stream_);
}

TEST_F(PoolTest, ForgettingADestroyedStreamWaitsForItsWork) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  const CUstream passing = machine_.stream();
  const DeviceAddress first = pool.allocate(64_MiB, passing);
  std::uint32_t* const word = machine_.hold(passing);
  machine_.fill(first, 1_MiB, 1, passing);
  pool.free(first, passing);
  call<EntryPoint::cuStreamDestroy>(machine_.api(), passing);
  std::atomic<bool> forgotten = false;
  std::thread forgetting([&] {
    pool.forget(passing);
    forgotten = true;
  });
  for (int i = 0; i < 50 && !forgotten; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(forgotten);
  EXPECT_EQ(pool.trim(), 0u);
  machine_.let_go(word, stream_);
  forgetting.join();
  EXPECT_EQ(pool.trim(), 64_MiB);
}

TEST_F(PoolTest, APrivatePoolServesACapture) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  pool.free(pool.allocate(64_MiB, stream_), stream_);
  {
    Pool captured = pool.make_private();
    call<EntryPoint::cuStreamBeginCapture>(machine_.api(), stream_, CU_STREAM_CAPTURE_MODE_GLOBAL);
    const DeviceAddress first = captured.allocate(64_MiB, stream_);
    machine_.fill(first, 4096, 5, stream_);
    captured.free(first, stream_);
    const DeviceAddress second = captured.allocate(64_MiB, stream_);
    EXPECT_EQ(second, first) << "in the order of the captured stream";
    const DeviceAddress third = captured.allocate(40_MiB, stream_);
    captured.free(second, stream_);
    const DeviceAddress others = captured.allocate(64_MiB, other_);
    EXPECT_NE(others, second) << "what the graph uses goes to no other stream";
    CUgraph graph = nullptr;
    ASSERT_EQ(machine_.api().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    ASSERT_NE(graph, nullptr);
    CUgraphExec executable = nullptr;
    call<EntryPoint::cuGraphInstantiateWithFlags>(machine_.api(), &executable, graph, 0ULL);
    for (int launch = 0; launch < 2; ++launch) call<EntryPoint::cuGraphLaunch>(machine_.api(), executable, stream_);
    unsigned seen = 0;
    machine_.read(first, &seen, stream_);
    machine_.finish(stream_);
    EXPECT_EQ(seen, 5u);
    EXPECT_EQ(captured.trim(), 0u) << "the graph may be launched again";
    call<EntryPoint::cuGraphExecDestroy>(machine_.api(), executable);
    call<EntryPoint::cuGraphDestroy>(machine_.api(), graph);
    captured.free(third, stream_);
    captured.free(others, other_);
  }
}

TEST_F(PoolTest, APrivatePoolTakesWhatIsFreeAndGivesItBack) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  const DeviceAddress live = pool.allocate(1_MiB, stream_);
  for (const DeviceAddress each : {pool.allocate(64_MiB, stream_), pool.allocate(48_MiB, stream_)})
    pool.free(each, stream_);
  machine_.finish(stream_);
  const std::size_t reserved = pool.statistics().reserved_bytes;
  {
    Pool captured = pool.make_private();
    machine_.calls();
    const DeviceAddress taken = captured.allocate(112_MiB, other_);
    EXPECT_EQ(machine_.calls()[EntryPoint::cuMemCreate], 0u);
    EXPECT_EQ(captured.statistics().reserved_bytes, 112_MiB);
    EXPECT_EQ(pool.statistics().reserved_bytes, reserved - 112_MiB);
    const DeviceAddress made = captured.allocate(32_MiB, other_);
    EXPECT_EQ(machine_.calls()[EntryPoint::cuMemCreate], 1u) << "there is no more";
    const DeviceAddress small = captured.allocate(512, other_);
    machine_.fill(taken + 111_MiB, 1_MiB, 4, other_);
    machine_.finish(other_);
    for (const DeviceAddress each : {taken, made, small}) captured.free(each, other_);
    EXPECT_LT(pool.statistics().recyclable_bytes, 2_MiB) << "it keeps them as long as it is there";
  }
  EXPECT_EQ(pool.statistics().reserved_bytes, reserved + 34_MiB);
  machine_.calls();
  const DeviceAddress again = pool.allocate(144_MiB, stream_);
  EXPECT_EQ(machine_.calls()[EntryPoint::cuMemCreate], 0u);
  pool.free(again, stream_);
  pool.free(live, stream_);
}

TEST_F(PoolTest, APrivatePoolTakesNothingThatWorkMayUse) {
  PoolOptions options = hasty();
  options.budget = 64_MiB;
  Pool pool = Pool::create(machine_.driver(), options);
  const DeviceAddress first = pool.allocate(64_MiB, stream_);
  std::uint32_t* const word = machine_.hold(stream_);
  machine_.fill(first, 1_MiB, 1, stream_);
  pool.free(first, stream_);
  Pool captured = pool.make_private();
  EXPECT_FALSE(captured.try_allocate(64_MiB, other_));
  machine_.let_go(word, stream_);
  const DeviceAddress taken = captured.allocate(64_MiB, other_);
  EXPECT_FALSE(pool.try_allocate(2_MiB, stream_)) << "the budget is that of both";
  captured.free(taken, other_);
}

TEST_F(PoolTest, APrivatePoolOutlivesThePoolThatItWasMadeFrom) {
  {
    std::optional<Pool> pool(Pool::create(machine_.driver(), hasty()));
    pool->free(pool->allocate(64_MiB, stream_), stream_);
    machine_.finish(stream_);
    Pool captured = pool->make_private();
    const DeviceAddress taken = captured.allocate(64_MiB, other_);
    pool.reset();
    machine_.fill(taken + 63_MiB, 1_MiB, 2, other_);
    captured.free(taken, other_);
    machine_.finish(other_);
    const DeviceAddress more = captured.allocate(96_MiB, other_);
    captured.free(more, other_);
  }
  EXPECT_TRUE(machine_.nothing_live());
}

TEST_F(PoolTest, ACaptureOfAStreamDoesNotKeepWhatWasFreedOnItBefore) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  const DeviceAddress first = pool.allocate(64_MiB, stream_);
  machine_.fill(first, 4096, 1, stream_);
  pool.free(first, stream_);
  call<EntryPoint::cuStreamBeginCapture>(machine_.api(), stream_, CU_STREAM_CAPTURE_MODE_GLOBAL);
  const DeviceAddress second = pool.allocate(64_MiB, other_);
  EXPECT_NE(second, first) << "where the stream has come to cannot be told";
  CUgraph graph = nullptr;
  ASSERT_EQ(machine_.api().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  call<EntryPoint::cuGraphDestroy>(machine_.api(), graph);
  machine_.finish(stream_);
  (void)pool.trim(SIZE_MAX);  // asks
  machine_.finish(stream_);
  EXPECT_EQ(pool.allocate(64_MiB, other_), first);
  pool.free(first, other_);
  pool.free(second, other_);
}

TEST_F(PoolTest, APackedRequestThatFailsLeavesWhatWasFree) {
  PoolOptions options = hasty();
  options.budget = 64_MiB;
  Pool pool = Pool::create(machine_.driver(), options);
  const DeviceAddress first = pool.allocate(20_MiB, stream_), second = pool.allocate(20_MiB, stream_),
                      third = pool.allocate(20_MiB, stream_);
  pool.free(third, stream_);
  EXPECT_FALSE(pool.try_allocate(30_MiB, stream_));  // it would begin in the free memory
  const DeviceAddress again = pool.allocate(20_MiB, stream_);
  for (const DeviceAddress each : {first, second, again}) pool.free(each, stream_);
}

TEST_F(PoolTest, WhatCannotBeGrantedIsMappedNoMoreAndCountedSo) {
  Pool pool = Pool::create(machine_.driver(), hasty());
  for (const std::size_t bytes : {3_MiB, 64_MiB}) {
    machine_.faults().inject({.entry_point = EntryPoint::cuMemSetAccess});
    EXPECT_FALSE(pool.try_allocate(bytes, stream_));
    EXPECT_EQ(pool.statistics().mappings, 0u);
    const PoolDriverCalls calls = pool.statistics().calls;
    EXPECT_EQ(calls.map, calls.unmap);
    pool.free(pool.allocate(bytes, stream_), stream_);
    EXPECT_GE(pool.statistics().mappings, 1u);
    machine_.finish(stream_);
    pool.trim();
    EXPECT_EQ(pool.statistics().mappings, 0u);
  }
}

TEST_F(PoolTest, WhatIsLargerThanAllIsRefusedWithoutWaiting) {
  PoolOptions options;
  options.budget = 128_MiB;
  options.pressure_wait = 1h;
  Pool pool = Pool::create(machine_.driver(), options);
  const DeviceAddress first = pool.allocate(64_MiB, stream_);
  std::uint32_t* const word = machine_.hold(stream_);
  pool.free(first, stream_);
  EXPECT_EQ(failure_of([&] { (void)pool.allocate(129_MiB, other_); }).kind, ErrorKind::out_of_device_memory);
  machine_.let_go(word, stream_);
}

TEST_F(PoolTest, C50_AnAllocationThatWaitsKeepsNobodyFromFreeingAndTheWaitEnds) {
  PoolOptions options;
  options.budget = 64_MiB;
  options.pressure_wait = 60s;
  Pool pool = Pool::create(machine_.driver(), options);
  const DeviceAddress first = pool.allocate(64_MiB, stream_);
  const DeviceAddress nothing = DeviceAddress{};
  std::uint32_t* const word = machine_.hold(stream_);
  pool.free(first, stream_);
  std::atomic<unsigned long long> got = nothing.value;
  std::thread waiter([&] {
    const CurrentContext context(machine_.driver().device(DeviceOrdinal{0}));
    const DeviceAddress address = pool.allocate(40_MiB, other_);
    got = address.value;
    pool.free(address, other_);
  });
  // Others go on meanwhile: statistics, trimming, and allocations of the stream that the memory belongs to.
  for (int count = 0; count < 20; ++count) {
    EXPECT_EQ(pool.trim(), 0u);
    EXPECT_LE(pool.statistics().reserved_bytes, 64_MiB);
    const DeviceAddress mine = pool.allocate(64_MiB, stream_);
    pool.free(mine, stream_);
  }
  EXPECT_EQ(got.load(), nothing.value);
  machine_.let_go(word, stream_);
  waiter.join();
  EXPECT_NE(got.load(), nothing.value);
}

TEST_F(PoolTest, SeveralDevicesHaveMemoryOfTheirOwn) {
  PoolMachine two(pool_machine(2_GiB, 2));
  const CUstream stream = two.stream();
  {
    Pool pool = Pool::create(two.driver(), {.devices = {DeviceOrdinal{0}, DeviceOrdinal{1}},
                                            .grants = {{Location::device(DeviceOrdinal{0})}}});
    const DeviceAddress here = pool.allocate(64_MiB, stream), there = pool.allocate(64_MiB, stream, DeviceOrdinal{1});
    EXPECT_EQ(pool.describe(here)->device, DeviceOrdinal{0});
    EXPECT_EQ(pool.describe(there)->device, DeviceOrdinal{1});
    EXPECT_EQ(pool.statistics(DeviceOrdinal{1}).live_bytes, 64_MiB);
    EXPECT_EQ(pool.statistics().live_bytes, 128_MiB);
    two.fill(there, 4096, 4, stream);  // granted
    pool.free(here, stream);
    pool.free(there, stream);
    EXPECT_EQ(failure_of([&] { (void)pool.statistics(DeviceOrdinal{2}); }).kind, ErrorKind::invalid_use);
  }
  EXPECT_TRUE(two.nothing_live());
}

// What the child answers with its exit code: each bit is a call that was not refused in words.
TEST_F(PoolTest, AForkedChildIsRefusedInWordsAndTheParentGoesOn) {
  Pool pool = Pool::create(machine_.driver());
  const DeviceAddress live = pool.allocate(1_MiB, stream_);
  const pid_t child = ::fork();
  if (child == 0) {
    int wrong = 0, bit = 1;
    const auto refused = [&](auto&& step) {
      try {
        step();
        wrong |= bit;
      } catch (const InvalidUse& error) {
        if (!mentions(error.what(), "in a forked child")) wrong |= bit;
      }
      bit *= 2;
    };
    refused([&] { (void)pool.allocate(1, stream_); });
    refused([&] { pool.free(live, stream_); });
    refused([&] { pool.used_on(live, other_); });
    refused([&] { pool.forget(other_); });
    refused([&] { (void)pool.trim(); });
    refused([&] { (void)pool.statistics(); });
    refused([&] { (void)pool.make_private(); });
    { const Pool gone = std::move(pool); }
    if (!handler_.take().empty()) wrong = 255;
    ::_exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  pool.free(live, stream_);
}

TEST_F(PoolTest, WhatIsLiveWhenItGoesIsTold) {
  {
    Pool pool = Pool::create(machine_.driver());
    (void)pool.allocate(1_MiB, stream_);
  }
  const auto told = handler_.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(mentions(told.front().message(), "1 allocation")) << told.front().message();
}

TEST_F(PoolTest, AMovedFromOneIsRefused) {
  Pool pool = Pool::create(machine_.driver());
  Pool owner = std::move(pool);
  EXPECT_EQ(failure_of([&] { (void)pool.allocate(1, stream_); }).kind, ErrorKind::invalid_use);
  EXPECT_EQ(failure_of([&] { pool.free({}, stream_); }).kind, ErrorKind::invalid_use);
  EXPECT_EQ(failure_of([&] { (void)pool.statistics(); }).kind, ErrorKind::invalid_use);
  pool = std::move(owner);
  pool.free(pool.allocate(1, stream_), stream_);
}

}  // namespace
}  // namespace cuvmm
