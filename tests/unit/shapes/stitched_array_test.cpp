// Layouts, who reaches the memory, and what fails.
#include "cuvmm/stitched_array.hpp"

#include <gtest/gtest.h>

#include <array>

#include "shapes/shape_test.hpp"

namespace cuvmm {
namespace {

using test::Alive;
using test::EntryPoint;

const Location device0 = Location::device(DeviceOrdinal(0));
const Location device1 = Location::device(DeviceOrdinal(1));
const Location device2 = Location::device(DeviceOrdinal(2));
const Location node0 = Location::host_numa(0);

StitchedOptions places(std::vector<Location> locations, const StitchedLayout& layout = StitchedLayout::block()) {
  StitchedOptions options;
  options.locations = std::move(locations);
  options.layout = layout;
  return options;
}

class StitchedArrayTest : public test::ShapeTest {
 protected:
  StitchedArrayTest() : ShapeTest(3) {}

  StitchedMemory memory(std::size_t bytes, const StitchedOptions& options) {
    return StitchedMemory::create(machine_.driver(), bytes, options);
  }
  // Where the driver says that the memory behind each part lies.
  void expect_as_told(const StitchedMemory& memory) {
    for (const StitchedPart& part : memory.parts())
      EXPECT_EQ(PhysicalMemory::retain(machine_.driver(), memory.address() + part.offset).properties().location,
                part.location)
          << part.offset;
  }
};

TEST_F(StitchedArrayTest, BlocksAreOneForEachPlaceAndAsEqualAsCanBe) {
  const auto made = memory(13_MiB, places({device0, node0, device1}));
  EXPECT_EQ(made.parts(),
            (std::vector<StitchedPart>{{device0, 0, 6_MiB}, {node0, 6_MiB, 4_MiB}, {device1, 10_MiB, 3_MiB}}));
  expect_as_told(made);
  EXPECT_EQ(made.size(), 13_MiB);
  EXPECT_EQ(made.location_at(0), device0);
  EXPECT_EQ(made.location_at(6_MiB - 1), device0);
  EXPECT_EQ(made.location_at(6_MiB), node0);
  EXPECT_EQ(made.location_at(13_MiB - 1), device1);
  EXPECT_THROW(static_cast<void>(made.location_at(13_MiB)), InvalidUse);
  EXPECT_EQ(made.parts_at(node0), (std::vector<StitchedPart>{{node0, 6_MiB, 4_MiB}}));
  EXPECT_TRUE(made.parts_at(device2).empty());
  const auto little = memory(3_MiB, places({device0, device1, device2}));
  EXPECT_EQ(little.parts(), (std::vector<StitchedPart>{{device0, 0, 2_MiB}, {device1, 2_MiB, 1_MiB}}))
      << "a place for which nothing is left has no part";
}

TEST_F(StitchedArrayTest, PiecesGoRoundThePlaces) {
  const auto made = memory(15_MiB, places({device1, device0}, StitchedLayout::cyclic(3_MiB)));
  EXPECT_EQ(made.parts(),
            (std::vector<StitchedPart>{
                {device1, 0, 4_MiB}, {device0, 4_MiB, 4_MiB}, {device1, 8_MiB, 4_MiB}, {device0, 12_MiB, 3_MiB}}));
  expect_as_told(made);
  EXPECT_EQ(made.parts_at(device0).size(), 2u);
  EXPECT_EQ(made.warning(), "");
  const auto alone = memory(16_MiB, places({device1}, StitchedLayout::cyclic(2_MiB)));
  EXPECT_EQ(alone.parts().size(), 1u) << "round one place there is nothing to go";
  EXPECT_EQ(memory(4_MiB, places({device0, device1}, StitchedLayout::cyclic(1_TiB))).parts().size(), 1u);
  EXPECT_THROW(static_cast<void>(StitchedLayout::cyclic(0)), InvalidUse);
}

TEST_F(StitchedArrayTest, C52_IsMadeByTheShortestSequenceOfCalls) {
  machine_.calls();
  {
    const auto made = memory(12_MiB, places({device0, device1}));
    const std::string calls = machine_.calls();  // which begin with questions to the devices
    EXPECT_TRUE(calls.ends_with("cuMemCreate 2, cuMemAddressReserve 1, cuMemMap 2, cuMemSetAccess 1")) << calls;
  }
  EXPECT_EQ(machine_.calls(), "cuMemRelease 2, cuMemAddressFree 1, cuMemUnmap 1");
}

TEST_F(StitchedArrayTest, C52_NeedlesslyManyMappingsAreWarnedOf) {
  std::vector<std::string> heard;
  auto options = places({device0, device1}, StitchedLayout::cyclic(2_MiB));
  options.on_warning = [&](const std::string& warning) { heard.push_back(warning); };
  EXPECT_EQ(memory(256_MiB, options).parts().size(), 128u);
  EXPECT_TRUE(heard.empty()) << "64 pieces a place";
  const auto made = memory(258_MiB, options);
  EXPECT_EQ(made.parts().size(), 129u);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(made.warning(), heard.front());
  EXPECT_NE(heard.front().find("pieces of 2 MiB make 129 mappings"), std::string::npos) << heard.front();
  EXPECT_NE(heard.front().find("Pieces of 4 MiB make 65"), std::string::npos) << heard.front();
  options.layout = StitchedLayout::cyclic(4_MiB);
  EXPECT_EQ(memory(258_MiB, options).warning(), "") << "the way out is one";
  options.layout = StitchedLayout::block();
  EXPECT_EQ(memory(258_MiB, options).warning(), "");
  EXPECT_EQ(heard.size(), 1u);
}

TEST_F(StitchedArrayTest, AWarningThatNobodyListensToIsPrinted) {
  const auto options = places({device0, device1}, StitchedLayout::cyclic(2_MiB));
  testing::internal::CaptureStderr();
  static_cast<void>(memory(258_MiB, options));
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(printed.starts_with("cuvmm: StitchedMemory::create: pieces of 2 MiB")) << printed;
}

TEST_F(StitchedArrayTest, IsOneArrayOfElements) {
  using Three = std::array<std::byte, 3>;  // no granule is a multiple of it
  auto array = StitchedArray<Three>::create(machine_.driver(), 1'500'000, places({device0, device1}));
  EXPECT_EQ(array.size(), 1'500'000u);
  const std::size_t first_of_second = (4_MiB + 2) / 3;
  using Part = StitchedArray<Three>::Part;
  EXPECT_EQ(array.parts(), (std::vector<Part>{{device0, 0, first_of_second},
                                              {device1, first_of_second, 1'500'000 - first_of_second}}));
  EXPECT_EQ(array.location_of(first_of_second - 1), device0) << "which ends on the other device";
  EXPECT_EQ(array.location_of(first_of_second), device1);
  EXPECT_THROW(static_cast<void>(array.location_of(1'500'000)), InvalidUse);
  EXPECT_EQ(array.parts_at(device1), (std::vector<Part>{{device1, first_of_second, 1'500'000 - first_of_second}}));
  std::vector<Three> sent(3000), received(3000);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i].fill(static_cast<std::byte>(i * 7));
  array.write(first_of_second - 1500, sent);
  array.read(first_of_second - 1500, received);
  EXPECT_EQ(received, sent);
  EXPECT_THROW(array.write(1'500'000 - 2999, sent), InvalidUse);
  EXPECT_THROW(array.read(SIZE_MAX / 2, received), InvalidUse);
  array.write(1'500'000 - 3000, sent);
  array.write(1'500'000, {});
}

TEST_F(StitchedArrayTest, C24_EveryDeviceWithMemoryInItReachesAllOfIt) {
  auto options = places({device0, device1, node0});
  options.more_devices = {DeviceOrdinal(1), DeviceOrdinal(2)};
  const auto made = memory(12_MiB, options);
  EXPECT_TRUE(made.unreachable().empty());
  for (const StitchedPart& part : made.parts())
    for (const Location& each : {device0, device1, device2})
      EXPECT_EQ(machine_.rights(made.address() + part.offset, each), AccessRights::read_write);
  const auto of_host = memory(2_MiB, places({node0}));
  of_host.address().as_pointer<int>()[5] = 1;
  EXPECT_EQ(of_host.address().as_pointer<int>()[5], 1);
}

TEST_F(StitchedArrayTest, C26_DevicesThatDoNotReachAllAreNamedOrRefused) {
  emulator::Configuration configuration = test::strict_machine(3);
  configuration.no_peer_access = {{0, 2}};
  test::RangeMachine machine(configuration);
  auto options = places({device0, device1});
  options.more_devices = {DeviceOrdinal(2)};
  const auto made = StitchedMemory::create(machine.driver(), 8_MiB, options);
  EXPECT_EQ(made.unreachable(), std::vector{DeviceOrdinal(2)});
  EXPECT_EQ(made.grants().size(), 2u);
  options.require_all = true;
  const auto refused = StitchedMemory::try_create(machine.driver(), 8_MiB, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::not_supported);
  EXPECT_NE(refused.failure().message().find("device 2 cannot reach memory of device 0"), std::string::npos)
      << refused.failure().message();
  options.locations = {device1};
  options.more_devices = {DeviceOrdinal(0), DeviceOrdinal(2)};
  EXPECT_TRUE(StitchedMemory::try_create(machine.driver(), 8_MiB, options)) << "all reach device 1";
  const auto nobody = StitchedMemory::try_create(machine.driver(), 8_MiB, places({device0, device2}));
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.failure().kind, ErrorKind::not_supported);
  EXPECT_EQ(machine.alive(), (Alive{2, 2, 1})) << "the one that was made";
}

TEST_F(StitchedArrayTest, WhatCannotBeIsRefusedAndTheLikeIsNot) {
  const auto refuses = [&](std::size_t bytes, const StitchedOptions& options) {
    const auto made = StitchedMemory::try_create(machine_.driver(), bytes, options);
    return !made && made.failure().kind == ErrorKind::invalid_use;
  };
  EXPECT_TRUE(refuses(0, places({device0})));
  EXPECT_TRUE(refuses(SIZE_MAX, places({device0})));
  EXPECT_TRUE(refuses(1, places({})));
  EXPECT_TRUE(refuses(1, places({device0, device1, device0})));
  EXPECT_EQ(StitchedMemory::try_create(machine_.driver(), 1, places({device0, device0})).failure().call,
            "StitchedMemory::create")
      << "before anything is asked of others";
  EXPECT_TRUE(refuses(1, places({Location::device(DeviceOrdinal(3))})));
  EXPECT_FALSE(refuses(1, places({device2})));
  EXPECT_FALSE(refuses(1, places({device0, device1})));
  const auto numbers = StitchedArray<double>::try_create(machine_.driver(), SIZE_MAX / 4, places({device0}));
  ASSERT_FALSE(numbers);
  EXPECT_EQ(numbers.failure().kind, ErrorKind::invalid_use);
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(StitchedArrayTest, C34_NothingIsLeftOfAnArrayThatCouldNotBeMade) {
  const auto options = places({device0, device1, node0}, StitchedLayout::cyclic(2_MiB));
  for (const auto& [entry, calls] : {std::pair{EntryPoint::cuMemGetAllocationGranularity, 4},
                                     {EntryPoint::cuDeviceCanAccessPeer, 2},
                                     {EntryPoint::cuMemAddressReserve, 1},
                                     {EntryPoint::cuMemCreate, 6},
                                     {EntryPoint::cuMemMap, 6},
                                     {EntryPoint::cuMemSetAccess, 1}}) {
    for (int call = 1; call <= calls; ++call) {
      machine_.fail(entry, static_cast<std::uint64_t>(call), abi::CUDA_ERROR_UNKNOWN);
      const auto made = StitchedMemory::try_create(machine_.driver(), 12_MiB, options);
      machine_.faults().clear();
      ASSERT_FALSE(made) << driver::name(entry) << " " << call;
      EXPECT_EQ(made.failure().call, driver::name(entry));
      EXPECT_EQ(machine_.alive(), Alive{}) << driver::name(entry) << " " << call;
    }
  }
  EXPECT_TRUE(StitchedMemory::try_create(machine_.driver(), 12_MiB, options)) << "a retry works";
}

}  // namespace
}  // namespace cuvmm
