// The parts of `cuvmm replay`, on the emulated driver: allocators, what plays a trace on them, and what is told of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "command/input_error.hpp"
#include "cuvmm/context.hpp"
#include "cuvmm/error.hpp"
#include "emulator/configuration.hpp"
#include "replay/ballast.hpp"
#include "replay/findings.hpp"
#include "replay/player.hpp"
#include "traces/random_allocations.hpp"
#include "traces/workload.hpp"

namespace cuvmm::replay {
namespace {

using driver::EntryPoint;
using Json = nlohmann::json;

// An emulated device with 1 GiB that is free.
class ReplayTest : public ::testing::Test {
 protected:
  static Driver machine() {
    emulator::Configuration configuration;
    configuration.mode = emulator::Mode::strict;
    configuration.on_warning = [](const std::string&) {};
    return Driver::emulated(configuration);
  }
  std::uint64_t free_bytes() const {
    std::size_t free = 0, total = 0;
    aside_.interface().cuMemGetInfo(&free, &total);
    return free;
  }
  std::uint64_t calls(EntryPoint entry) const { return counting_->snapshot()[entry]; }
  DeviceAddress allocated(Allocator& allocator, std::size_t bytes, std::uint32_t stream = 0) {
    return allocator.allocate(bytes, stream).value();
  }

  Driver aside_ = machine();
  std::shared_ptr<driver::CountingDriver> counting_ =
      std::make_shared<driver::CountingDriver>(aside_.shared_interface());
  Bench bench_{Driver::wrap(counting_), aside_, 2};
  CurrentContext context_{aside_.device(DeviceOrdinal(0))};
  Ballast ballast_{aside_, 1_GiB};
};

TEST_F(ReplayTest, CachingServesSmallOnesFromOneSegment) {
  const auto allocator = make_caching_allocator(bench_);
  const DeviceAddress one = allocated(*allocator, 100);
  const DeviceAddress two = allocated(*allocator, 513);
  EXPECT_EQ(two, one + 512);
  EXPECT_EQ(allocated(*allocator, 1_MiB), two + 1024);
  EXPECT_EQ(allocator->physical_bytes(), 2_MiB);
  EXPECT_EQ(calls(EntryPoint::cuMemAlloc), 1U);
}

TEST_F(ReplayTest, CachingHasSegmentsAsTheSizesAsk) {
  const auto allocator = make_caching_allocator(bench_);
  const auto grows_by = [&](std::size_t bytes) {
    const std::uint64_t before = allocator->physical_bytes();
    static_cast<void>(allocated(*allocator, bytes));
    return allocator->physical_bytes() - before;
  };
  EXPECT_EQ(grows_by(1_MiB), 2_MiB);
  EXPECT_EQ(grows_by(1_MiB + 1), 20_MiB);
  EXPECT_EQ(grows_by(10_MiB), 0U) << "what is left of that one";
  EXPECT_EQ(grows_by(10_MiB), 20_MiB);
  EXPECT_EQ(grows_by(10_MiB + 1), 12_MiB);
}

TEST_F(ReplayTest, CachingTakesTheSmallestBlockThatIsLargeEnough) {
  const auto allocator = make_caching_allocator(bench_);
  const DeviceAddress large = allocated(*allocator, 64_MiB);
  const DeviceAddress middle = allocated(*allocator, 32_MiB);
  allocator->free(large, 0);
  allocator->free(middle, 0);
  EXPECT_EQ(allocated(*allocator, 30_MiB), middle);
  EXPECT_EQ(allocated(*allocator, 40_MiB), large);
  EXPECT_EQ(allocated(*allocator, 24_MiB), large + 40_MiB) << "what is left of it";
  EXPECT_EQ(allocator->physical_bytes(), 96_MiB);
}

TEST_F(ReplayTest, CachingDoesNotCutLargeBlocksForLittle) {
  const auto allocator = make_caching_allocator(bench_);
  const DeviceAddress whole = allocated(*allocator, 20_MiB);
  allocator->free(whole, 0);
  EXPECT_EQ(allocated(*allocator, 19_MiB), whole);
  static_cast<void>(allocated(*allocator, 1_MiB + 1));
  EXPECT_EQ(allocator->physical_bytes(), 40_MiB) << "the last MiB stayed with the block";
}

TEST_F(ReplayTest, CachingJoinsFreeNeighbours) {
  const auto allocator = make_caching_allocator(bench_);
  const DeviceAddress one = allocated(*allocator, 4_MiB);
  const DeviceAddress two = allocated(*allocator, 4_MiB);
  const DeviceAddress three = allocated(*allocator, 4_MiB);
  allocator->free(one, 0);
  allocator->free(three, 0);
  allocator->free(two, 0);
  EXPECT_EQ(allocated(*allocator, 20_MiB), one);
  EXPECT_EQ(allocator->physical_bytes(), 20_MiB);
}

TEST_F(ReplayTest, CachingKeepsStreamsApart) {
  const auto allocator = make_caching_allocator(bench_);
  const DeviceAddress one = allocated(*allocator, 32_MiB, 0);
  allocator->free(one, 0);
  EXPECT_NE(allocated(*allocator, 32_MiB, 1), one);
  EXPECT_EQ(allocated(*allocator, 32_MiB, 0), one);
  EXPECT_EQ(allocator->physical_bytes(), 64_MiB);
}

TEST_F(ReplayTest, CachingGivesBackWhatIsFreeBeforeItRefuses) {
  const auto allocator = make_caching_allocator(bench_);
  const DeviceAddress kept = allocated(*allocator, 4_MiB);
  allocator->free(allocated(*allocator, 600_MiB), 0);
  static_cast<void>(allocated(*allocator, 700_MiB));
  EXPECT_EQ(allocator->physical_bytes(), 720_MiB);
  const auto refused = allocator->allocate(400_MiB, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::out_of_device_memory);
  allocator->free(kept, 0);
  EXPECT_TRUE(allocator->allocate(200_MiB, 0));
}

TEST_F(ReplayTest, OrderedPoolsGiveBackWhatIsFreeBeforeTheyRefuse) {
  const auto allocator = make_ordered_allocator(bench_);
  allocator->free(allocated(*allocator, 600_MiB), 0);
  EXPECT_GE(allocator->physical_bytes(), 600_MiB) << "kept";
  static_cast<void>(allocated(*allocator, 700_MiB, 1));
  const auto refused = allocator->allocate(700_MiB, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::out_of_device_memory);
}

TEST_F(ReplayTest, NothingIsLeftOfAnyAllocator) {
  const std::uint64_t before = free_bytes();
  for (const AllocatorEntry& entry : all_allocators()) {
    {
      const auto allocator = entry.make(bench_);
      std::vector<DeviceAddress> live;
      std::mt19937 random(1);
      for (int i = 0; i < 300; ++i) {
        if (random() % 2 == 0 && !live.empty()) {
          allocator->free(live.back(), 0);
          live.pop_back();
        } else {
          live.push_back(allocated(*allocator, 1 + random() % 3'000'000));
        }
      }
      EXPECT_LT(free_bytes(), before) << entry.name;
      EXPECT_GE(allocator->physical_bytes(), before - free_bytes()) << entry.name;
    }
    EXPECT_EQ(free_bytes(), before) << entry.name;
  }
}

// What no allocator may do: give out bytes twice.
TEST_F(ReplayTest, AllocationsDoNotOverlap) {
  const auto trace = traces::random_allocations({.seed = 2, .count = 400, .live_bytes = 1_GiB});
  for (const AllocatorEntry& entry : all_allocators()) {
    for (std::size_t look = 50; look < trace.events.size(); look += 150) {
      const Played played = play(trace, *entry.make(bench_), *counting_, look);
      ASSERT_FALSE(played.allocated.empty());
      for (std::size_t i = 1; i < played.allocated.size(); ++i)
        EXPECT_LE((played.allocated[i - 1].address + played.allocated[i - 1].bytes).value,
                  played.allocated[i].address.value)
            << entry.name;
    }
  }
}

traces::AllocationTrace three() {
  traces::AllocationRecorder recorder;
  recorder.allocate(1, 600_MiB, 0, {});
  recorder.allocate(2, 800_MiB, 0, {});
  recorder.free(2, {});
  recorder.free(1, {});
  recorder.allocate(3, 3_MiB, 0, {});
  return std::move(recorder).finish("made up");
}

TEST_F(ReplayTest, ThePlayerTellsWhatWasRefused) {
  const auto allocator = make_plain_allocator(bench_);
  std::size_t steps = 0;
  const Played played = play(three(), *allocator, *counting_, 4, [&] { ++steps; });
  EXPECT_EQ(steps, 5U);
  EXPECT_EQ(played.allocations, 2U);
  EXPECT_EQ(played.frees, 1U) << "what was refused is not freed";
  EXPECT_EQ(played.refused, 1U);
  ASSERT_TRUE(played.first_refused);
  EXPECT_EQ(played.first_refused->event, 1U);
  EXPECT_EQ(played.first_refused->bytes, 800_MiB);
  EXPECT_EQ(played.first_refused->live, 600_MiB);
  EXPECT_EQ(played.live, (std::vector<std::uint64_t>{600_MiB, 600_MiB, 600_MiB, 0, 3_MiB}));
  EXPECT_EQ(played.peak_live, 600_MiB);
  EXPECT_EQ(played.peak_physical, 600_MiB);
  EXPECT_EQ(played.calls[EntryPoint::cuMemAlloc], 3U);
  EXPECT_EQ(played.calls[EntryPoint::cuMemFree], 1U);
  ASSERT_EQ(played.allocated.size(), 1U);
  EXPECT_EQ(played.allocated[0].bytes, 3_MiB);
}

TEST_F(ReplayTest, ABallastLeavesWhatItIsToldTo) {
  const std::uint64_t before = free_bytes();
  {
    const Ballast ballast(aside_, 100_MiB);
    EXPECT_EQ(ballast.left_bytes(), free_bytes());
    EXPECT_GE(free_bytes(), 100_MiB);
    EXPECT_LT(free_bytes(), 102_MiB);
    EXPECT_THROW(Ballast(aside_, 200_MiB), command::InputError);
  }
  EXPECT_EQ(free_bytes(), before);
}

traces::AllocationTrace intervals(const std::vector<std::array<std::uint64_t, 3>>& list) {
  std::string text = "lower,upper,size\n";
  for (const auto& [lower, upper, bytes] : list)
    text += std::to_string(lower) + "," + std::to_string(upper) + "," + std::to_string(bytes) + "\n";
  return traces::read_workload(text, "made up", {});
}

TEST_F(ReplayTest, ChunksFitWhereAddressesDoNot) {
  // Of 6 MiB at a time: without moving, the last one does not fit into the two holes.
  const auto trace = intervals({{0, 2, 2_MiB}, {0, 4, 2_MiB}, {0, 2, 2_MiB}, {2, 4, 4_MiB}});
  const std::uint64_t before = free_bytes();
  const Fit found = fit(trace, bench_, *counting_);
  EXPECT_EQ(found.peak_live, 6_MiB);
  EXPECT_EQ(found.chunk_bytes, 2_MiB);
  EXPECT_EQ(found.chunks, 3U);
  EXPECT_EQ(found.rounding_bytes, 0U);
  EXPECT_EQ(found.exact_scale, 1U);
  EXPECT_EQ(found.calls[EntryPoint::cuMemCreate], 3U);
  EXPECT_EQ(found.calls[EntryPoint::cuMemMap], 5U);
  EXPECT_EQ(found.packed_bytes, 6_MiB);
  EXPECT_EQ(found.packed_chunks(), 3U);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(ReplayTest, FittingTellsWhatRoundingCosts) {
  const Fit found = needed_chunks(intervals({{0, 2, 3_MiB}, {1, 3, 1_MiB}, {2, 3, 3_MiB}}), 2_MiB);
  EXPECT_EQ(found.peak_live, 4_MiB);
  EXPECT_EQ(found.chunks, 3U);
  EXPECT_EQ(found.rounding_bytes, 2_MiB);
  EXPECT_EQ(found.exact_scale, 2U);
}

TEST_F(ReplayTest, WhatIsSmallBesideAChunkIsPackedIntoFew) {
  const auto trace = intervals({{0, 2, 1_MiB}, {0, 3, 512}, {1, 3, 1_MiB}, {2, 3, 1_MiB}});
  const Fit found = fit(trace, bench_, *counting_);
  EXPECT_EQ(found.chunks, 3U);
  EXPECT_EQ(found.packed_bytes, 2_MiB + 512);
  EXPECT_EQ(found.packed_chunks(), 2U);
  EXPECT_EQ(Fit{}.packed_chunks(), std::nullopt) << "unknown";
}

TEST_F(ReplayTest, PackingFindsRoomThatOthersHaveLeft) {
  EXPECT_EQ(packed_bytes(intervals({{0, 1, 4}, {1, 2, 4}})), 4U);
  EXPECT_EQ(packed_bytes(intervals({{0, 2, 4}, {1, 3, 4}})), 8U);
  EXPECT_EQ(packed_bytes(intervals({{0, 3, 4}, {3, 9, 4}, {0, 9, 4}, {9, 21, 4}, {0, 21, 4}})), 12U);
}

TEST_F(ReplayTest, EveryAllocatorIsReplayed) {
  std::string names;
  for (const AllocatorEntry& each : all_allocators()) names += std::string(each.name) + " ";
  EXPECT_EQ(names, "cuMemAlloc cuMemAllocAsync caching Pool ");
}

class ReplayPage : public ReplayTest {
 protected:
  Findings findings() {
    Findings findings;
    findings.driver = "a driver";
    findings.device = "a device";
    findings.emulated = true;
    findings.trace = "'<b>&.csv'";
    findings.allocations = three();
    findings.most_live = traces::most_live(findings.allocations);
    for (const AllocatorEntry& entry : all_allocators()) {
      findings.played.push_back(play(findings.allocations, *entry.make(bench_), *counting_, 0));
      findings.played.back().name = entry.name;
      findings.played.back().description = entry.description;
    }
    return findings;
  }
};

TEST_F(ReplayPage, TellsTheRatioAndWhatWasRefused) {
  const std::string page = as_page(findings());
  for (const char* part : {"3 allocations, 2 frees, 1 stream", "peak physical", "cuMemAllocAsync", "caching",
                           "event 1 asked for 800 MiB with 600 MiB live", "times mean nothing"})
    EXPECT_NE(page.find(part), std::string::npos) << part << " in\n" << page;
  EXPECT_EQ(page.find("All known beforehand"), std::string::npos);
  Findings timed = findings();
  timed.emulated = false;
  timed.fit = needed_chunks(timed.allocations, 2_MiB);
  EXPECT_NE(as_page(timed).find("us each"), std::string::npos);
  EXPECT_NE(as_page(timed).find("All known beforehand: 700 chunks of 2 MiB"), std::string::npos) << as_page(timed);
}

TEST_F(ReplayPage, WritesJson) {
  const Json json = Json::parse(as_json(findings()));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["trace"]["peak_live_bytes"], 1400_MiB);
  EXPECT_EQ(json["trace"]["allocations"], 3);
  EXPECT_EQ(json["limit_bytes"], nullptr);
  EXPECT_EQ(json["fit"], nullptr);
  ASSERT_EQ(json["allocators"].size(), all_allocators().size());
  const Json& plain = json["allocators"][0];
  EXPECT_EQ(plain["name"], "cuMemAlloc");
  EXPECT_EQ(plain["peak_physical_bytes"], 600_MiB);
  EXPECT_EQ(plain["ratio"], 1.0);
  EXPECT_EQ(plain["first_refused"]["event"], 1);
  EXPECT_EQ(plain["driver_calls_by_name"]["cuMemAlloc"], 3);
  EXPECT_EQ(plain["milliseconds"], nullptr) << "on the emulated driver";
}

TEST_F(ReplayPage, DrawsAPictureThatNeedsNothingElse) {
  const std::string picture = as_picture(findings());
  EXPECT_EQ(picture.find("<!DOCTYPE html>"), 0U);
  for (const char* part :
       {"Physical memory over time", "caching", "held and unused", "'&lt;b&gt;&amp;.csv'", "class=used"})
    EXPECT_NE(picture.find(part), std::string::npos) << part;
  // Five events of 600, 600, 600, 0 and 3 MiB, of 1,400 that are live at most where nothing is refused.
  EXPECT_NE(picture.find("class=live d='M0,125.7H200.0V125.7H400.0V125.7H600.0V220.0H800.0V219.5H1000.0V220H0Z'"),
            std::string::npos)
      << picture;
  for (const char* never : {"<b>", "http", "src=", "url(", "nan", "inf'"})
    EXPECT_EQ(picture.find(never), std::string::npos) << never;
}

}  // namespace
}  // namespace cuvmm::replay
