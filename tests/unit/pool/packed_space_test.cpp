#include "pool/packed_space.hpp"

#include <gtest/gtest.h>

#include "pool/span_space.hpp"

namespace cuvmm::pool {
namespace {

using State = PackedSpace::State;

constexpr std::size_t granule = 4096;

// Blocks tile the space, and free neighbours of one owner are one.
void expect_sound(const PackedSpace& space, std::size_t bytes, std::size_t unit = granule) {
  std::size_t end = 0, splinters = 0;
  const PackedSpace::Block* before = nullptr;
  for (const auto& [offset, block] : space.blocks()) {
    EXPECT_EQ(offset, end);
    EXPECT_NE(block.bytes, 0u);
    if (before != nullptr && before->state == block.state && block.state == State::free) {
      EXPECT_NE(before->claim.stream, block.claim.stream);
    }
    end += block.bytes;
    before = &block;
    if (block.state != State::free) continue;
    for (std::size_t part = offset; part < end;) {
      const std::size_t next = std::min(end, (part / unit + 1) * unit);
      if (next - part < unit) splinters += next - part;
      part = next;
    }
  }
  EXPECT_EQ(end, bytes);
  EXPECT_EQ(space.splinter_bytes(), splinters);
}

class PackedSpaceTest : public testing::Test {
 protected:
  ~PackedSpaceTest() override { expect_sound(space_, 64 * granule); }

  // Memory is there as soon as it is asked for.
  std::size_t allocate(std::size_t bytes, StreamNumber stream = 1) {
    const Tenant tenant{stream, bytes};
    if (const auto found = space_.take(bytes, tenant)) return *found;
    const auto fit = space_.find(bytes, stream, 0);
    EXPECT_TRUE(fit);
    const auto window = space_.open(fit->place);
    space_.let(window, tenant);
    return window.place.offset;
  }

  PackedSpace space_{64 * granule, granule, 1};
};

TEST_F(PackedSpaceTest, PacksSideBySideAndMapsWholeGranules) {
  const auto fit = space_.find(512, 1, 0);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->missing, granule);
  const auto window = space_.open(fit->place);
  EXPECT_EQ(window.place.offset, 0u);
  ASSERT_EQ(window.unmapped.size(), 1u);
  EXPECT_EQ(window.unmapped[0].bytes, granule);
  space_.let(window, {1, 500});
  EXPECT_EQ(allocate(1024), 512u);
  EXPECT_EQ(allocate(granule), 1536u) << "the end of the granule serves the next";
  EXPECT_EQ(space_.at(600)->first, 512u);
}

TEST_F(PackedSpaceTest, TheSmallestHoleThatFitsIsTaken) {
  const std::size_t large = allocate(8 * 512), wall = allocate(512), small = allocate(2 * 512), end = allocate(512);
  space_.give(large, {1, 1});
  space_.give(small, {1, 2});
  EXPECT_EQ(allocate(2 * 512), small);
  EXPECT_EQ(allocate(5 * 512), large);
  EXPECT_LT(wall, end);
}

TEST_F(PackedSpaceTest, WhatAStreamFreedIsItsOwnUntilItIsRipe) {
  const std::size_t first = allocate(granule), wall = allocate(512);
  space_.give(first, {1, 5});
  EXPECT_NE(allocate(granule, 2), first);
  space_.ripen(1, 4);
  EXPECT_NE(allocate(granule, 2), first);
  space_.ripen(1, 5);
  EXPECT_EQ(allocate(granule, 2), first);
  EXPECT_EQ(wall, granule);
}

TEST_F(PackedSpaceTest, AWindowTakesTheFewestGranules) {
  const std::size_t first = allocate(granule), second = allocate(2 * granule), wall = allocate(granule);
  space_.give(first, {});
  space_.give(second, {});
  space_.vacate({second, granule});
  const auto fit = space_.find(3 * granule, 1, 0);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->missing, granule);
  const auto window = space_.open(fit->place);
  EXPECT_EQ(window.place.offset, first);
  ASSERT_EQ(window.unmapped.size(), 1u);
  EXPECT_EQ(window.unmapped[0].offset, second);
  space_.close(window);
  EXPECT_EQ(space_.at(second)->second.state, State::unmapped);
  EXPECT_EQ(space_.at(first)->second.state, State::free);
  EXPECT_EQ(wall, 3 * granule);
}

TEST_F(PackedSpaceTest, ADetainedBlockIsNeitherLiveNorFree) {
  const std::size_t only = allocate(granule);
  space_.detain(only);
  EXPECT_FALSE(space_.take(512, {1, 512}));
  space_.readmit(only, {1, granule});
  EXPECT_EQ(space_.at(only)->second.state, State::live);
  space_.give(only, {});
  EXPECT_EQ(space_.take(512, {2, 512}), only);
}

TEST_F(PackedSpaceTest, NoWindowIsFoundWhereThereIsNoRoom) {
  EXPECT_FALSE(space_.find(64 * granule + 1, 1, 0));
  allocate(60 * granule);
  EXPECT_FALSE(space_.find(5 * granule, 1, 0));
  EXPECT_TRUE(space_.find(4 * granule, 1, 0));
}

TEST(PackedRegionsTest, SizesHaveFourRegionsToEachPowerOfTwo) {
  constexpr std::size_t unit = std::size_t{128} << 10;
  const PackedSpace space(std::size_t{1} << 40, granule);
  EXPECT_EQ(space.region_for(1), 0u);
  EXPECT_EQ(space.region_for(4 * unit), 0u);
  for (std::size_t quarter = 4; quarter < 8; ++quarter) {
    EXPECT_EQ(space.region_for(quarter * unit + 1), quarter - 3);
    EXPECT_EQ(space.region_for((quarter + 1) * unit), quarter - 3);
    EXPECT_EQ(space.region_for(2 * (quarter + 1) * unit), quarter + 1);
  }
  EXPECT_EQ(space.region_for(512 * unit), space.regions() - 1);
  EXPECT_EQ(space.region_for(SIZE_MAX), space.regions() - 1);
}

TEST(PackedRegionsTest, AllocationsOfOtherSizesLieElsewhereAndHolesDoNotReachAcross) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  PackedSpace space(64 * mib, 2 * mib, 4);
  const auto allocate = [&](std::size_t bytes, std::size_t region) {
    const auto fit = space.find(bytes, 1, region);
    EXPECT_TRUE(fit);
    space.let(space.open(fit->place), {1, bytes});
    return fit->place.offset;
  };
  const std::size_t small = allocate(mib / 2, 0), medium = allocate(mib / 8 * 5, 1);
  EXPECT_EQ(small, 0u);
  EXPECT_EQ(medium, 16 * mib);
  EXPECT_FALSE(space.take(mib / 8 * 6, {1, 1})) << "what is free is in the regions of other sizes";
  EXPECT_TRUE(space.take(mib / 8 * 5, {1, 1}));
  EXPECT_EQ(space.find(mib, 1, 0)->missing, 0u) << "and is found where one looks";
  EXPECT_FALSE(space.find(17 * mib, 1, 0));
  const std::size_t rest = allocate(15 * mib + mib / 2, 0);
  EXPECT_EQ(rest, mib / 2);
  space.give(rest, {});
  EXPECT_EQ(space.at(rest)->second.bytes, 15 * mib + mib / 2) << "the next region begins behind it";
  expect_sound(space, 64 * mib, 2 * mib);
}

TEST(SpanSpaceTest, AddressesComeBackTogether) {
  SpanSpace space(10 * granule);
  const auto a = space.take_addresses(3 * granule), b = space.take_addresses(3 * granule),
             c = space.take_addresses(4 * granule);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(*a, 3 * granule) << "with room before it";
  EXPECT_EQ(*b, 0u) << "and without where there is none";
  EXPECT_FALSE(space.take_addresses(granule));
  space.give_addresses({*b, 3 * granule});
  space.give_addresses({*c, 4 * granule});
  EXPECT_FALSE(space.take_addresses(5 * granule));
  space.give_addresses({*a, 3 * granule});
  EXPECT_EQ(space.take_addresses(10 * granule), 0u);
}

}  // namespace
}  // namespace cuvmm::pool
