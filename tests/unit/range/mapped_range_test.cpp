// Growing, exchanging and giving back, without faults; see mapped_range_faults_test.cpp for those.
#include "cuvmm/mapped_range.hpp"

#include <gtest/gtest.h>

#include "range_machine.hpp"
#include "recording_handler.hpp"

namespace cuvmm {
namespace {

using test::Alive;
using test::EntryPoint;

const Location device0 = Location::device(DeviceOrdinal(0));
const Location device1 = Location::device(DeviceOrdinal(1));

constexpr std::size_t small_capacity = 64_MiB;

MappedRangeOptions small(std::size_t capacity = small_capacity, const ChunkPolicy& chunks = ChunkPolicy::exact()) {
  MappedRangeOptions options;
  options.capacity = capacity;
  options.chunks = chunks;
  return options;
}

class MappedRangeTest : public testing::Test {
 protected:
  MappedRange range(const MappedRangeOptions& options = small()) {
    return MappedRange::create(machine_.driver(), options);
  }
  void write(const MappedRange& to, std::size_t offset, std::span<const std::byte> bytes) {
    const CurrentContext context(machine_.driver().device(DeviceOrdinal(0)));
    copy_bytes_to_device(machine_.driver(), to.address() + offset, bytes);
  }
  std::vector<std::byte> read(const MappedRange& from, std::size_t offset, std::size_t bytes) {
    const CurrentContext context(machine_.driver().device(DeviceOrdinal(0)));
    std::vector<std::byte> content(bytes);
    copy_bytes_from_device(machine_.driver(), content, from.address() + offset);
    return content;
  }

  test::RecordingHandler clean_up_;
  test::RangeMachine machine_{test::strict_machine(2)};
};

TEST_F(MappedRangeTest, TakesTheShortestSequenceOfCalls) {
  const auto source = PhysicalSource::create(machine_.driver());
  {
    MappedRangeOptions options = small();
    options.source = source;
    machine_.calls();
    auto one = range(options);
    EXPECT_EQ(machine_.calls(), "cuMemGetAllocationGranularity 1, cuMemAddressReserve 1");
    one.append(4_MiB);
    EXPECT_EQ(machine_.calls(), "cuMemCreate 1, cuMemMap 1, cuMemSetAccess 1");
    one.append(6_MiB);
    one.append(2_MiB);
    EXPECT_EQ(machine_.calls(), "cuMemCreate 2, cuMemMap 2, cuMemSetAccess 2");
    one.unmap(4_MiB, 8_MiB);
    EXPECT_EQ(machine_.calls(), "cuMemRelease 2, cuMemUnmap 1") << "neighbours are unmapped in one call";
    one.grant(device1, AccessRights::read);
    EXPECT_EQ(machine_.calls(), "cuMemSetAccess 1");
    one.close();
    EXPECT_EQ(machine_.calls(), "cuMemRelease 1, cuMemAddressFree 1, cuMemUnmap 1");
  }
  EXPECT_EQ(machine_.calls(), "");
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(MappedRangeTest, ManyChunksOfOneAppendAreGrantedInOneCall) {
  auto one = range(small(64_MiB, ChunkPolicy::fixed(2_MiB)));
  machine_.calls();
  one.append(32_MiB);
  EXPECT_EQ(machine_.calls(), "cuMemCreate 16, cuMemMap 16, cuMemSetAccess 1");
  EXPECT_EQ(one.chunks().size(), 16u);
}

TEST_F(MappedRangeTest, AppendsUseWhatTheLastChunkHasLeft) {
  auto one = range();
  EXPECT_EQ(one.append(100), 0u);
  EXPECT_EQ(one.size(), 100u);
  EXPECT_EQ(one.mapped_bytes(), 2_MiB);
  machine_.calls();
  EXPECT_EQ(one.append(2_MiB - 100), 100u);
  EXPECT_EQ(machine_.calls(), "");
  EXPECT_EQ(one.append(0), 2_MiB);
  EXPECT_EQ(machine_.calls(), "");
  EXPECT_EQ(one.append(1), 2_MiB);
  EXPECT_EQ(one.mapped_bytes(), 4_MiB);
}

TEST_F(MappedRangeTest, KeepsItsContentWhileItGrows) {
  auto one = range(small(256_MiB, ChunkPolicy::geometric()));
  std::vector<std::byte> all;
  for (unsigned i = 0; i < 12; ++i) {
    const auto more = test::pattern(1000 + (300'000u * i), i);
    const std::size_t at = one.append(more.size());
    ASSERT_EQ(at, all.size());
    write(one, at, more);
    all.insert(all.end(), more.begin(), more.end());
  }
  EXPECT_EQ(read(one, 0, all.size()), all);
  EXPECT_EQ(one.generation(), 0u) << "growing changes no page that was there";
}

TEST_F(MappedRangeTest, CopiesStayWithinItsContent) {
  auto one = range();
  one.append(1000);
  const CurrentContext context(machine_.driver().device(DeviceOrdinal(0)));
  const std::string sent = "ends here";
  std::string received(sent.size(), ' ');
  EXPECT_THROW(copy_to_device(one, 1001 - sent.size(), sent), InvalidUse) << "although the chunk goes on";
  EXPECT_THROW(copy_from_device(received, one, 1001 - sent.size()), InvalidUse);
  copy_to_device(one, 1000 - sent.size(), sent);
  copy_from_device(received, one, 1000 - sent.size());
  EXPECT_EQ(received, sent);
}

TEST_F(MappedRangeTest, SeveralMemoriesAreAppendedWithOneGrantOrNotAtAll) {
  auto one = range();
  auto other = range();
  const std::vector<SharedPhysicalMemory> memories{one.source()->acquire({}, 2_MiB), one.source()->acquire({}, 4_MiB)};
  one.append(100);
  machine_.calls();
  EXPECT_EQ(one.append(memories), 2_MiB);
  EXPECT_EQ(machine_.calls(), "cuMemMap 2, cuMemSetAccess 1");
  EXPECT_EQ(one.size(), 8_MiB);
  EXPECT_EQ(one.chunks().size(), 3u);
  EXPECT_EQ(one.append(std::span<const SharedPhysicalMemory>()), 8_MiB);
  EXPECT_EQ(machine_.calls(), "");
  const std::vector<SharedPhysicalMemory> with_none{memories[0], {}};
  const auto refused = other.try_append(with_none);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::invalid_use);
  for (int call = 1; call <= 2; ++call) {
    machine_.fail(EntryPoint::cuMemMap, static_cast<std::uint64_t>(call));
    EXPECT_FALSE(other.try_append(memories));
    EXPECT_EQ(other.mapped_bytes(), 0u);
  }
  machine_.faults().clear();
  EXPECT_EQ(other.append(memories), 0u);
  EXPECT_EQ(machine_.alive().mappings, 5u);
}

TEST_F(MappedRangeTest, NoneOfSeveralMemoriesLiesAcrossTwoReservations) {
  auto one = range(small(4_MiB));
  const std::vector<SharedPhysicalMemory> memories{one.source()->acquire({}, 2_MiB), one.source()->acquire({}, 4_MiB)};
  const auto across = one.try_append(memories);
  ASSERT_FALSE(across);
  EXPECT_NE(across.failure().arguments.find("offset = 2097152"), std::string::npos) << across.failure().message();
  const std::vector<SharedPhysicalMemory> the_other_way{memories[1], memories[0]};
  EXPECT_EQ(one.append(the_other_way), 0u);
  EXPECT_EQ(one.mapped_bytes(), 6_MiB);
}

TEST_F(MappedRangeTest, C24_GrantsReachPagesMappedLater) {
  MappedRangeOptions options = small();
  options.grants = {{device0, AccessRights::read_write}, {device1, AccessRights::read_write}};
  auto one = range(options);
  for (int i = 0; i < 3; ++i) one.append(4_MiB);
  for (const ChunkInfo& chunk : one.chunks())
    EXPECT_EQ(machine_.rights(one.address() + chunk.offset, device1), AccessRights::read_write) << chunk.offset;
  const CurrentContext context(machine_.driver().device(DeviceOrdinal(1)));
  const auto content = test::pattern(4096, 1);
  copy_bytes_to_device(machine_.driver(), one.address() + (one.size() - 4096), content);
  EXPECT_EQ(read(one, one.size() - 4096, 4096), content);
}

TEST_F(MappedRangeTest, C25_EveryPathThatMapsGrantsTheWholeSet) {
  MappedRangeOptions options = small();
  options.grants = {{device0, AccessRights::read_write}, {device1, AccessRights::read}};
  auto one = range(options);
  const auto source = PhysicalSource::create(machine_.driver());
  one.append(2_MiB);
  one.append(2_MiB, device1);
  one.append(source->acquire({}, 2_MiB));
  one.map(16_MiB, 2_MiB);
  one.map(20_MiB, source->acquire({}, 2_MiB));
  one.replace(16_MiB, source->acquire({}, 2_MiB));
  auto other = range(options);
  const RangeAppend batch[] = {{&one, 4_MiB}, {&other, 2_MiB}};
  append_all(batch);
  one.unmap(0, 2_MiB);
  one.map(0, 2_MiB);
  for (const MappedRange* each : {&one, &other})
    for (const ChunkInfo& chunk : each->chunks()) {
      EXPECT_EQ(machine_.rights(each->address() + chunk.offset, device0), AccessRights::read_write) << chunk.offset;
      EXPECT_EQ(machine_.rights(each->address() + chunk.offset, device1), AccessRights::read) << chunk.offset;
    }
  EXPECT_EQ(one.chunks().size(), 6u);
}

TEST_F(MappedRangeTest, RightsAreChangedOnAllChunksAndOnThoseToCome) {
  auto one = range();
  one.append(2_MiB);
  one.map(8_MiB, 2_MiB);  // behind a hole
  one.grant(device1, AccessRights::read);
  one.append(2_MiB);
  for (const ChunkInfo& chunk : one.chunks())
    EXPECT_EQ(machine_.rights(one.address() + chunk.offset, device1), AccessRights::read) << chunk.offset;
  one.revoke(device1);
  one.append(2_MiB);
  for (const ChunkInfo& chunk : one.chunks())
    EXPECT_EQ(machine_.rights(one.address() + chunk.offset, device1), AccessRights::none) << chunk.offset;
  EXPECT_EQ(one.grants(), (std::vector<AccessGrant>{{device0, AccessRights::read_write}}));
}

TEST_F(MappedRangeTest, MemoryOfSeveralDevicesLiesBehindOnePointer) {
  MappedRangeOptions options = small();
  options.grants = {{device0, AccessRights::read_write}, {device1, AccessRights::read_write}};
  auto one = range(options);
  one.append(2_MiB);
  EXPECT_EQ(one.append(2_MiB, device1), 2_MiB);
  EXPECT_EQ(one.append(100, device0), 4_MiB);
  EXPECT_EQ(one.append(100, device1), 6_MiB) << "memory of another place begins a chunk of its own";
  EXPECT_EQ(one.append(100, device1), 6_MiB + 100);
  const auto chunks = one.chunks();
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[1].location, device1);
  EXPECT_EQ(chunks[2].location, device0);
  const auto content = test::pattern(4_MiB, 7);
  write(one, 0, content);
  EXPECT_EQ(read(one, 0, 4_MiB), content);
}

TEST_F(MappedRangeTest, AppendsWithoutALocationUseTheRangesOwn) {
  auto one = range(small(64_MiB, ChunkPolicy::fixed(4_MiB)));
  one.append(100);
  EXPECT_EQ(one.append(100, device1), 4_MiB);
  EXPECT_EQ(one.append(100), 8_MiB) << "what the other device's chunk has left is not the range's own memory";
  EXPECT_EQ(one.chunks().back().location, device0);
}

TEST_F(MappedRangeTest, ThePolicyLooksAtEachLocationByItself) {
  auto one = range(small(256_MiB, ChunkPolicy::geometric()));
  one.append(16_MiB);
  one.append(2_MiB, device1);
  EXPECT_EQ(one.chunks().back().bytes, 2_MiB) << "not as much as is mapped on the first device";
  one.append(2_MiB);
  EXPECT_EQ(one.chunks().back().bytes, 16_MiB);
}

TEST_F(MappedRangeTest, WhereThePolicyAsksForTooMuchJustEnoughIsTaken) {
  PhysicalSourceOptions few;
  few.budgets = {{device0, 24_MiB}};
  MappedRangeOptions options = small(256_MiB, ChunkPolicy::geometric());
  options.source = PhysicalSource::create(machine_.driver(), few);
  auto one = range(options);
  one.append(16_MiB);
  EXPECT_EQ(one.append(3_MiB), 16_MiB) << "geometric asks for 16 MiB, and 8 are left";
  EXPECT_EQ(one.chunks().back().bytes, 4_MiB);
  const auto refused = one.try_append(6_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().asked_bytes, 6_MiB) << "what the caller asked for";
  EXPECT_EQ(refused.failure().rounded_bytes, 6_MiB) << "5 MiB beyond what is left, in whole granules";
  EXPECT_EQ(one.append(5_MiB), 19_MiB);
}

TEST_F(MappedRangeTest, AliasesShareTheirBytes) {
  auto one = range();
  one.append(2_MiB);
  auto other = range();
  other.append(one.memory_at(5));
  one.append(one.memory_at(0));  // twice in one range
  const auto content = test::pattern(2_MiB, 3);
  write(other, 0, content);
  EXPECT_EQ(read(one, 0, 2_MiB), content);
  EXPECT_EQ(read(one, 2_MiB, 2_MiB), content);
  EXPECT_EQ(machine_.alive().handles, 1u);
  one.close();
  EXPECT_EQ(read(other, 0, 2_MiB), content) << "the alias keeps the memory";
  other.close();
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(MappedRangeTest, NewMemoryIsPutBehindAKeptAddress) {
  auto one = range();
  one.append(4_MiB);
  one.append(2_MiB);
  const auto content = test::pattern(6_MiB, 4);
  write(one, 0, content);
  const auto source = one.source();
  const auto old = one.memory_at(4_MiB);
  const auto fresh = source->acquire({}, 2_MiB);
  const auto returned = one.replace(4_MiB, fresh);
  EXPECT_EQ(returned, old);
  EXPECT_EQ(one.memory_at(4_MiB), fresh);
  EXPECT_EQ(one.generation(), 1u);
  write(one, 4_MiB, test::pattern(2_MiB, 5));
  EXPECT_EQ(read(one, 0, 4_MiB), std::vector(content.begin(), content.begin() + 4_MiB)) << "the others stay";
  one.replace(4_MiB, returned);
  EXPECT_EQ(read(one, 0, 6_MiB), content);
}

TEST_F(MappedRangeTest, ReplacingIsRefusedWhereTheMemoryDoesNotFit) {
  auto one = range();
  one.append(4_MiB);
  const auto source = one.source();
  EXPECT_THROW(one.replace(2_MiB, source->acquire({}, 4_MiB)), InvalidUse) << "no chunk begins there";
  EXPECT_THROW(one.replace(0, source->acquire({}, 2_MiB)), InvalidUse) << "another size";
  EXPECT_THROW(one.replace(0, SharedPhysicalMemory()), InvalidUse);
  const test::RangeMachine elsewhere;
  EXPECT_THROW(one.replace(0, SharedPhysicalMemory(PhysicalMemory::create(elsewhere.driver(), {}, 4_MiB))), InvalidUse);
  EXPECT_EQ(one.generation(), 0u);
  EXPECT_NO_THROW(one.replace(0, source->acquire({}, 4_MiB)));
}

TEST_F(MappedRangeTest, UnmapsWholeChunksOnly) {
  auto one = range(small(64_MiB, ChunkPolicy::fixed(4_MiB)));
  one.append(12_MiB);
  for (const auto& [offset, bytes] : {std::pair{0_MiB, 2_MiB}, {2_MiB, 2_MiB}, {2_MiB, 6_MiB}, {4_MiB, 5_MiB}}) {
    const auto refused = one.try_unmap(offset, bytes);
    ASSERT_FALSE(refused) << offset;
    EXPECT_EQ(refused.failure().kind, ErrorKind::invalid_use);
    EXPECT_NE(refused.failure().message().find("whole"), std::string::npos) << refused.failure().message();
  }
  EXPECT_THROW(one.unmap(4_MiB, SIZE_MAX), InvalidUse);
  EXPECT_EQ(one.mapped_bytes(), 12_MiB);
  one.unmap(4_MiB, 4_MiB);
  EXPECT_EQ(one.mapped_bytes(), 8_MiB);
  EXPECT_EQ(one.size(), 12_MiB) << "a hole is part of the content";
  EXPECT_FALSE(one.memory_at(5_MiB));
  one.unmap(4_MiB, 4_MiB);  // nothing there
  one.unmap(0, 64_MiB);     // with a hole, and behind the end
  EXPECT_EQ(one.mapped_bytes(), 0u);
  EXPECT_EQ(one.generation(), 2u);
}

TEST_F(MappedRangeTest, TruncatesToTheChunkThatIsStillNeeded) {
  auto one = range(small(64_MiB, ChunkPolicy::fixed(4_MiB)));
  one.append(12_MiB);
  one.truncate(5_MiB);
  EXPECT_EQ(one.size(), 5_MiB);
  EXPECT_EQ(one.mapped_bytes(), 8_MiB);
  EXPECT_EQ(one.append(1_MiB), 5_MiB);
  EXPECT_EQ(one.mapped_bytes(), 8_MiB);
  one.truncate(100_MiB);
  EXPECT_EQ(one.size(), 6_MiB) << "truncating never makes longer";
  one.truncate(0);
  EXPECT_EQ(one.mapped_bytes(), 0u);
  EXPECT_EQ(one.append(2_MiB), 0u);
}

TEST_F(MappedRangeTest, MapsAtOffsetsOfItsGranularityWhereNothingIs) {
  auto one = range();
  EXPECT_EQ(one.granularity(), 2_MiB);
  EXPECT_THROW(one.map(1_MiB, 2_MiB), InvalidUse);
  EXPECT_THROW(one.map(0, 3_MiB), InvalidUse);
  EXPECT_THROW(one.map(0, 0), InvalidUse);
  EXPECT_THROW(one.map(SIZE_MAX / 2_MiB * 2_MiB, 2_MiB), InvalidUse);
  one.map(8_MiB, 4_MiB);
  EXPECT_EQ(one.size(), 12_MiB);
  EXPECT_THROW(one.map(6_MiB, 4_MiB), InvalidUse) << "something is mapped there";
  EXPECT_THROW(one.map(10_MiB, 2_MiB), InvalidUse);
  one.map(6_MiB, 2_MiB);
  EXPECT_EQ(one.append(2_MiB), 12_MiB);
}

TEST_F(MappedRangeTest, MemoryThatEndsBehindAllAddressesIsRefused) {
  const auto of_size = [&](std::size_t bytes) {
    return SharedPhysicalMemory(PhysicalMemory::adopt(
        machine_.driver(), PhysicalMemory::create(machine_.driver(), {}, 2_MiB).give_out(), {}, bytes));
  };
  const std::size_t most = SIZE_MAX / 2 / 2_MiB * 2_MiB;
  auto one = range();
  const auto refused = [&](const Result<void>& result) {
    return !result && result.failure().kind == ErrorKind::invalid_use &&
           result.failure().rule.find("No range has that many addresses") != std::string::npos;
  };
  EXPECT_TRUE(refused(one.try_map(2_MiB, of_size(most))));
  EXPECT_TRUE(refused(one.try_map(SIZE_MAX / 2_MiB * 2_MiB, of_size(2_MiB))));
  one.append(6_MiB);
  const auto appended = one.try_append(of_size(most));
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.failure().kind, ErrorKind::invalid_use);
  EXPECT_EQ(one.chunks().size(), 1u);
  EXPECT_EQ(one.append(of_size(2_MiB)), 6_MiB);
}

TEST_F(MappedRangeTest, C39_AGrownRangeOwnsAllItsReservations) {
  auto one = range(small(4_MiB));
  one.append(4_MiB);
  write(one, 0, test::pattern(4_MiB, 6));
  const DeviceAddress address = one.address();
  one.append(6_MiB);
  EXPECT_EQ(one.address(), address) << "it grew in place";
  EXPECT_GE(one.capacity(), 10_MiB);
  EXPECT_EQ(machine_.alive().reservations, 2u);
  EXPECT_EQ(read(one, 0, 4_MiB), test::pattern(4_MiB, 6));
  one.unmap(0, one.size());
  one.append(2_MiB);
  one.close();
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(MappedRangeTest, ChunksDoNotLieAcrossReservations) {
  auto one = range(small(6_MiB, ChunkPolicy::fixed(4_MiB)));
  one.append(16_MiB);
  std::size_t end = 0;
  bool border = false;
  for (const ChunkInfo& chunk : one.chunks()) {
    EXPECT_EQ(chunk.offset, end);
    end += chunk.bytes;
    border = border || end == 6_MiB;
  }
  EXPECT_TRUE(border);
  auto other = range(small(6_MiB));
  other.append(4_MiB);
  const auto across = other.try_append(one.memory_at(0));
  ASSERT_FALSE(across) << "4 MiB at 4 MiB would lie across";
  EXPECT_EQ(across.failure().kind, ErrorKind::invalid_use);
  EXPECT_NE(across.failure().way_out.find(std::to_string(6_MiB)), std::string::npos) << across.failure().way_out;
  other.map(6_MiB, one.memory_at(0));
  other.truncate(4_MiB);
  other.map(4_MiB, 4_MiB);
  EXPECT_EQ(other.chunks().size(), 3u) << "new memory is made in two";
  other.truncate(4_MiB);
  other.append(2_MiB);
  EXPECT_EQ(other.append(one.memory_at(0)), 6_MiB);
}

TEST_F(MappedRangeTest, SaysThatTheAddressesBehindItAreTaken) {
  auto one = range(small(4_MiB));
  const auto behind = AddressReservation::create(machine_.driver(), 2_MiB, 0, one.address() + 4_MiB);
  ASSERT_EQ(behind.address(), one.address() + 4_MiB);
  const auto refused = one.try_append(6_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::out_of_address_space);
  EXPECT_NE(refused.failure().message().find("larger capacity"), std::string::npos) << refused.failure().message();
  EXPECT_EQ(refused.failure().asked_bytes, 6_MiB);
  const auto mapped = one.try_map(4_MiB, 4_MiB);
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.failure().call, "MappedRange::map");
  EXPECT_EQ(machine_.alive().reservations, 2u);
  EXPECT_EQ(one.append(4_MiB), 0u) << "what fits is appended";
}

TEST_F(MappedRangeTest, C31_TheCapacityIsHalvedWhereAddressesAreFew) {
  emulator::Configuration configuration = test::strict_machine();
  configuration.address_bytes = 48_GiB;  // fewer than the device has memory
  test::RangeMachine machine(configuration);
  MappedRangeOptions options;
  auto one = MappedRange::create(machine.driver(), options);
  EXPECT_GE(one.capacity(), 24_GiB);
  EXPECT_LE(one.capacity(), 48_GiB);
  one.append(2_MiB);
  options.capacity = 100_GiB;
  const auto refused = MappedRange::try_create(machine.driver(), options);
  ASSERT_FALSE(refused) << "a capacity that was asked for is not less";
  EXPECT_EQ(refused.failure().kind, ErrorKind::out_of_address_space);
  ASSERT_TRUE(refused.failure().largest_hole_bytes);
  options.capacity = *refused.failure().largest_hole_bytes;
  EXPECT_GT(options.capacity, 0u);
  EXPECT_NO_THROW(static_cast<void>(MappedRange::create(machine.driver(), options))) << "what was told does fit";
  options.capacity = *refused.failure().largest_hole_bytes + 2_MiB;
  EXPECT_FALSE(MappedRange::try_create(machine.driver(), options)) << "and it is the largest that does";
  options.capacity = 1_GiB;
  EXPECT_NO_THROW(static_cast<void>(MappedRange::create(machine.driver(), options)));
}

TEST_F(MappedRangeTest, TheDefaultCapacityIsTheDevicesMemory) {
  EXPECT_GE(range({}).capacity(), machine_.driver().device(DeviceOrdinal(0)).total_memory());
}

TEST_F(MappedRangeTest, C51_ClashingOptionsAreRefusedAtOnce) {
  const auto refused = [&](const MappedRangeOptions& options) {
    const auto result = MappedRange::try_create(machine_.driver(), options);
    return !result && result.failure().kind == ErrorKind::invalid_use;
  };
  MappedRangeOptions options = small();
  options.grants = {{device1, AccessRights::read}, {device1, AccessRights::read_write}};
  EXPECT_TRUE(refused(options));
  options.grants.pop_back();
  EXPECT_FALSE(refused(options));
  options.grants.push_back({Location::host(), AccessRights::read});
  EXPECT_TRUE(refused(options)) << "device memory cannot be granted to the host";
  options.memory.location = Location::host_numa(0);
  EXPECT_FALSE(refused(options));
  options.memory.compression = true;
  EXPECT_TRUE(refused(options)) << "host memory cannot be compressed";
  options.memory = {};
  options.memory.location = Location::host();
  options.memory.handle_types = HandleType::posix_file_descriptor;
  EXPECT_TRUE(refused(options)) << "it cannot be exported";
  options.memory.handle_types = {};
  EXPECT_FALSE(refused(options));
  options = small();
  options.require_features = true;
  EXPECT_TRUE(refused(options)) << "no feature is asked for";
  options.memory.compression = true;
  EXPECT_FALSE(refused(options));
  options = small(SIZE_MAX);
  EXPECT_TRUE(refused(options));
  options = small();
  options.alignment = 3;
  EXPECT_TRUE(refused(options));
  options.alignment = 4_MiB;
  EXPECT_FALSE(refused(options));
  options = small();
  options.device_wait = std::chrono::milliseconds(-1);
  EXPECT_TRUE(refused(options));
  const test::RangeMachine elsewhere;
  options = small();
  options.source = PhysicalSource::create(elsewhere.driver());
  EXPECT_TRUE(refused(options));
  options = small();
  options.retire_queue = RetireQueue::create(elsewhere.driver());
  EXPECT_TRUE(refused(options));
}

TEST(MappedRangeWithoutTheFeature, IsAFailureThatCanBeReturned) {
  emulator::Configuration configuration = test::strict_machine();
  configuration.profile = *emulator::find_profile("no-vmm");
  test::RangeMachine without(configuration);
  const auto range = MappedRange::try_create(without.driver(), small());
  ASSERT_FALSE(range);
  EXPECT_EQ(range.failure().kind, ErrorKind::not_supported);
  test::RangeMachine with;
  EXPECT_TRUE(MappedRange::try_create(with.driver(), small()));
}

TEST_F(MappedRangeTest, HostMemoryCanBeTouchedByTheCpuAfterTheGrant) {
  MappedRangeOptions options = small();
  options.memory.location = Location::host_numa(0);
  options.grants = {{Location::host_numa(0), AccessRights::read_write}, {device0, AccessRights::read_write}};
  auto one = range(options);
  one.append(3_MiB);
  auto* bytes = one.address().as_pointer<unsigned char>();
  bytes[0] = 17;
  bytes[3_MiB - 1] = 18;
  EXPECT_EQ(read(one, 0, 1)[0], std::byte{17});
  EXPECT_EQ(read(one, 3_MiB - 1, 1)[0], std::byte{18});
  EXPECT_THROW(one.append(2_MiB, device0), InvalidUse) << "device memory cannot be granted to the host";
  auto device_range = range();
  device_range.append(2_MiB);
  EXPECT_THROW(device_range.grant(Location::host()), InvalidUse);
}

TEST_F(MappedRangeTest, C46_HostMemoryOfANodeThatHasNoneIsATypedError) {
  MappedRangeOptions options = small();
  options.memory.location = Location::host_numa(7);
  auto without = MappedRange::try_create(machine_.driver(), options);
  const Result<std::size_t> appended = without ? without->try_append(2_MiB) : Result<std::size_t>(without.failure());
  ASSERT_FALSE(appended);
  const Failure& failure = appended.failure();
  EXPECT_NE(failure.kind, ErrorKind::driver_failure) << failure.message();
  EXPECT_FALSE(failure.rule.empty());
  options.memory.location = Location::host_numa(0);
  auto one = range(options);
  EXPECT_NO_THROW(one.append(2_MiB));
}

TEST_F(MappedRangeTest, C26_DevicesThatCannotReachAreReportedSoftly) {
  emulator::Configuration configuration = test::strict_machine(4);
  configuration.no_peer_access = {{0, 2}, {1, 3}};
  test::RangeMachine machine(configuration);
  auto one = MappedRange::create(machine.driver(), small());
  one.append(2_MiB);
  const DeviceOrdinal all[] = {DeviceOrdinal(0), DeviceOrdinal(1), DeviceOrdinal(2), DeviceOrdinal(3)};
  EXPECT_EQ(one.grant_where_reachable(all), std::vector{DeviceOrdinal(2)});
  EXPECT_EQ(machine.rights(one.address(), Location::device(DeviceOrdinal(3))), AccessRights::read_write);
  EXPECT_EQ(machine.rights(one.address(), Location::device(DeviceOrdinal(2))), AccessRights::none);
  auto two = MappedRange::create(machine.driver(), small());
  two.append(2_MiB);
  two.append(2_MiB, device1);
  two.grant(device1);
  EXPECT_EQ(two.grant_where_reachable(all), (std::vector{DeviceOrdinal(2), DeviceOrdinal(3)}));
  EXPECT_THROW(one.grant(Location::device(DeviceOrdinal(2))), Error) << "asked for by name it is an error";
  auto elsewhere = MappedRange::create(machine.driver(), small());
  EXPECT_EQ(elsewhere.grant_where_reachable(all), std::vector{DeviceOrdinal(2)})
      << "memory is to come where it is made";
  MappedRangeOptions options = small();
  options.grants = {{device1, AccessRights::read_write}};
  elsewhere = MappedRange::create(machine.driver(), options);
  elsewhere.append(2_MiB, device1);
  EXPECT_EQ(elsewhere.grant_where_reachable(all), std::vector{DeviceOrdinal(3)}) << "there is none on device 0";
}

TEST_F(MappedRangeTest, C26_AGrantToADeviceThatCannotReachIsRefusedWhereItIsNamed) {
  emulator::Configuration configuration = test::strict_machine(3);
  configuration.no_peer_access = {{0, 2}};
  test::RangeMachine machine(configuration);
  const Location device2 = Location::device(DeviceOrdinal(2));
  const auto expect_unreachable = [](const auto& result) {
    ASSERT_FALSE(result);
    const Failure& failure = result.failure();
    EXPECT_EQ(failure.kind, ErrorKind::not_supported) << failure.message();
    EXPECT_EQ(failure.rule_ids, "ACCESS-PEER");
    EXPECT_EQ(failure.reason, "device 2 cannot reach device 0");
    EXPECT_NE(failure.way_out.find("grant_where_reachable"), std::string::npos) << failure.message();
  };
  MappedRangeOptions options = small();
  options.grants = {{device0, AccessRights::read_write}, {device2, AccessRights::read}};
  expect_unreachable(MappedRange::try_create(machine.driver(), options));
  options.grants = {{device0, AccessRights::read_write}, {device2, AccessRights::none}};
  EXPECT_TRUE(MappedRange::try_create(machine.driver(), options)) << "no rights are asked for";

  auto one = MappedRange::create(machine.driver(), small());
  expect_unreachable(one.try_grant({{device2, AccessRights::read}}));
  EXPECT_TRUE(one.try_grant({{device1, AccessRights::read}}));
  EXPECT_TRUE(one.try_grant({{device2, AccessRights::none}}));
  one.append(2_MiB);
  expect_unreachable(one.try_grant({{device2, AccessRights::read}}));
  EXPECT_EQ(one.grants().size(), 2u);
}

TEST_F(MappedRangeTest, C26_SoIsMemoryThatAGrantedDeviceCannotReach) {
  emulator::Configuration configuration = test::strict_machine(3);
  configuration.no_peer_access = {{0, 2}};
  test::RangeMachine machine(configuration);
  const Location device2 = Location::device(DeviceOrdinal(2));
  MappedRangeOptions options = small();
  options.grants = {{device0, AccessRights::read_write}, {device1, AccessRights::read_write}};
  options.memory.location = device1;
  auto one = MappedRange::create(machine.driver(), options);
  one.append(2_MiB);
  const auto appended = one.try_append(2_MiB, device2);
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.failure().kind, ErrorKind::not_supported) << appended.failure().message();
  const auto replaced = one.try_replace(0, one.source()->acquire({.location = device2}, 2_MiB));
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.failure().kind, ErrorKind::not_supported) << replaced.failure().message();
  EXPECT_TRUE(one.try_append(2_MiB, device0));
}

// A range that got memory of another device counts it apart, whichever way it came.
TEST_F(MappedRangeTest, WhatReplacesAChunkElsewhereIsNoReasonToTakeMuchHere) {
  MappedRangeOptions options = small();
  options.chunks = ChunkPolicy::geometric();
  const auto sizes = [](const MappedRange& range) {
    std::vector<std::size_t> all;
    for (const ChunkInfo& each : range.chunks()) all.push_back(each.bytes);
    return all;
  };
  auto appended = range(options);
  appended.append(16_MiB, device1);
  appended.append(2_MiB);
  auto replaced = range(options);
  replaced.map(0, 16_MiB);
  replaced.replace(0, replaced.source()->acquire({.location = device1}, 16_MiB));
  replaced.append(2_MiB);
  EXPECT_EQ(sizes(replaced).back(), sizes(appended).back());
  auto at_home = range(options);
  at_home.map(0, 16_MiB);
  at_home.append(2_MiB);
  EXPECT_NE(sizes(at_home).back(), sizes(appended).back()) << "or the policy would not tell";
}

TEST_F(MappedRangeTest, TakesGrantsInBraces) {
  auto one = range(small());
  one.append(2_MiB);
  one.grant({{device0, AccessRights::read}, {device1, AccessRights::read_write}});
  EXPECT_EQ(machine_.rights(one.address(), device0), AccessRights::read);
  EXPECT_EQ(machine_.rights(one.address(), device1), AccessRights::read_write);
  one.grant({{device1, AccessRights::read}});
  EXPECT_EQ(machine_.rights(one.address(), device1), AccessRights::read);
  EXPECT_TRUE(one.try_grant({{device1, AccessRights::none}}));
  EXPECT_EQ(one.grant_where_reachable({DeviceOrdinal(1)}), std::vector<DeviceOrdinal>());
  EXPECT_EQ(machine_.rights(one.address(), device1), AccessRights::read_write);
}

TEST_F(MappedRangeTest, AFailureAsksForAMissingFeatureOnce) {
  emulator::Configuration configuration = test::strict_machine();
  configuration.profile.behaviour.withhold_compression = true;
  test::RangeMachine machine(configuration);
  MappedRangeOptions options = small();
  options.memory.compression = true;
  auto one = MappedRange::create(machine.driver(), options);
  EXPECT_TRUE(one.properties().compression);
  one.append(2_MiB);
  EXPECT_FALSE(one.properties().compression) << "asked for, and not got";
  machine.calls();
  one.append(2_MiB);
  EXPECT_EQ(machine.calls(), "cuMemCreate 1, cuMemMap 1, cuMemSetAccess 1") << "looked at once";
  options.require_features = true;
  auto strict = MappedRange::create(machine.driver(), options);
  EXPECT_THROW(strict.append(2_MiB), NotSupported);
  EXPECT_EQ(strict.mapped_bytes(), 0u);
}

TEST_F(MappedRangeTest, C30_RdmaThatOnlyTheGrantRefusesIsDoneWithout) {
  emulator::Configuration configuration = test::strict_machine();
  configuration.profile.behaviour.fail_set_access_on_rdma_memory = true;
  test::RangeMachine machine(configuration);
  MappedRangeOptions options = small();
  options.memory.gpu_direct_rdma = true;
  auto one = MappedRange::create(machine.driver(), options);
  EXPECT_EQ(one.append(4_MiB), 0u);
  EXPECT_FALSE(one.properties().gpu_direct_rdma);
  EXPECT_EQ(machine.alive(), (Alive{1, 1, 1}));
  options.require_features = true;
  auto strict = MappedRange::create(machine.driver(), options);
  EXPECT_THROW(strict.append(4_MiB), Error);
  EXPECT_TRUE(strict.properties().gpu_direct_rdma);
  EXPECT_EQ(machine.alive(), (Alive{1, 1, 2}));
}

TEST_F(MappedRangeTest, FeaturesThatAreThereAreKept) {
  for (const bool compression : {true, false}) {  // a device does not grant both together
    MappedRangeOptions options = small();
    options.memory.compression = compression;
    options.memory.gpu_direct_rdma = !compression;
    options.require_features = true;
    auto one = range(options);
    one.append(2_MiB);
    EXPECT_EQ(one.properties().compression, compression);
    EXPECT_EQ(one.properties().gpu_direct_rdma, !compression);
  }
}

TEST_F(MappedRangeTest, PinsForbidEveryChangeOfPages) {
  auto one = range();
  one.append(2_MiB);
  const auto fresh = one.source()->acquire({}, 2_MiB);
  {
    const RangePin pin = one.pin("registered with a network card");
    for (const auto& change :
         std::vector<std::function<void()>>{[&] { one.unmap(0, 2_MiB); }, [&] { one.replace(0, fresh); },
                                            [&] { one.truncate(0); }, [&] { one.close(); }}) {
      try {
        change();
        ADD_FAILURE() << "not refused";
      } catch (const InvalidUse& error) {
        EXPECT_NE(std::string(error.what()).find("registered with a network card"), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(one.generation(), 0u);
    EXPECT_NO_THROW(one.truncate(1)) << "no page is taken away";
    EXPECT_EQ(one.size(), 1u);
    one.append(2_MiB);  // growing changes nothing that is there
  }
  one.replace(0, fresh);
  one.unmap(0, 4_MiB);
  EXPECT_EQ(one.generation(), 2u);
}

TEST_F(MappedRangeTest, ObserversHearOfChangesInTime) {
  auto one = range();
  std::vector<std::string> heard;
  const auto note = [&](const char* what) {
    return [&heard, what, &one](std::size_t offset, std::size_t bytes) {
      heard.push_back(std::string(what) + " " + std::to_string(offset >> 20) + "+" + std::to_string(bytes >> 20) +
                      (one.memory_at(offset) ? " mapped" : " unmapped"));
    };
  };
  {
    const auto observation = one.observe({note("before"), note("after")});
    one.append(2_MiB);
    one.replace(0, one.source()->acquire({}, 2_MiB));
    one.unmap(0, 2_MiB);
  }
  one.append(2_MiB);
  EXPECT_EQ(heard, (std::vector<std::string>{"after 0+2 mapped", "before 0+2 mapped", "after 0+2 mapped",
                                             "before 0+2 mapped"}));
  {
    RangeObservation last;
    auto other = range();
    other.append(2_MiB);
    last = other.observe({[&](std::size_t, std::size_t) { heard.emplace_back("gone"); }, {}});
    heard.clear();
  }
  EXPECT_EQ(heard, std::vector<std::string>{"gone"}) << "the destructor tells, too";
  const auto veto = one.observe({[](std::size_t, std::size_t) { throw std::runtime_error("not now"); }, {}});
  EXPECT_THROW(one.unmap(0, one.size()), std::runtime_error);
  EXPECT_NE(one.mapped_bytes(), 0u);
}

TEST_F(MappedRangeTest, HooksAndObserversCannotChangeTheRangeThatCallsThem) {
  PhysicalSourceOptions few;
  few.budgets = {{device0, 8_MiB}};
  MappedRangeOptions options = small();
  options.source = PhysicalSource::create(machine_.driver(), few);
  auto one = range(options);
  auto other = range(options);
  one.append(4_MiB);
  other.append(4_MiB);
  std::vector<ErrorKind> refused;
  const auto hook = options.source->add_reclaim_hook([&](const ReclaimRequest&) -> std::size_t {
    if (const auto own = one.try_truncate(0); !own) refused.push_back(own.failure().kind);
    other.truncate(0);  // others may be changed
    return 4_MiB;
  });
  EXPECT_EQ(one.append(2_MiB), 4_MiB);
  EXPECT_EQ(one.mapped_bytes(), 6_MiB) << "its content is whole";
  const auto observation = one.observe({[&](std::size_t, std::size_t) {
                                          if (const auto own = one.try_append(2_MiB); !own)
                                            refused.push_back(own.failure().kind);
                                        },
                                        {}});
  one.truncate(2_MiB);
  const RangeAppend batch[] = {{&one, 2_MiB}};
  EXPECT_EQ(refused, (std::vector{ErrorKind::invalid_use, ErrorKind::invalid_use}));
  EXPECT_TRUE(try_append_all(batch)) << "afterwards it can be changed again";
  EXPECT_NO_THROW(one.append(2_MiB));
}

TEST_F(MappedRangeTest, TheHostHasOneName) {
  MappedRangeOptions options;
  options.memory.location = Location{LocationKind::host_numa, 0};
  options.grants = {{Location{LocationKind::host, 5}, AccessRights::read_write}};
  EXPECT_THROW(static_cast<void>(range(options)), InvalidUse);
  options.grants.front().location = Location::host();
  auto one = range(options);
  one.append(2_MiB);
  EXPECT_THROW(one.revoke(Location{LocationKind::host, 5}), InvalidUse);
  EXPECT_NO_THROW(one.revoke(Location::host()));
}

TEST_F(MappedRangeTest, IsRefusedAfterItWasClosedOrMovedFrom) {
  auto one = range();
  one.append(2_MiB);
  one.close();
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { one.close(); }, [&] { one.append(2_MiB); }, [&] { one.map(0, 2_MiB); }, [&] { one.unmap(0, 2_MiB); },
           [&] { one.truncate(0); }, [&] { one.grant(device1); }, [&] { one.revoke(device1); },
           [&] { static_cast<void>(one.pin("published")); },
           [&] { static_cast<void>(one.observe({.after_map = [](std::size_t, std::size_t) {}})); },
           [&] {
             append_all({{&one, 2_MiB}});
           }}) {
    EXPECT_THROW(use(), InvalidUse);
  }
  one = range();
  EXPECT_NO_THROW(one.append(2_MiB));
  EXPECT_NO_THROW(static_cast<void>(one.pin("published")));
  EXPECT_NO_THROW(static_cast<void>(one.observe({.after_map = [](std::size_t, std::size_t) {}})));
}

TEST_F(MappedRangeTest, BytesBehindItsAddressesAreRefused) {
  auto one = range(small(8_MiB));
  one.append(4_MiB);
  EXPECT_THROW(one.unmap(0, 1_TiB), InvalidUse) << "a wrong unit does not empty the range";
  EXPECT_THROW(one.unmap(10_MiB, 0), InvalidUse);
  EXPECT_EQ(one.mapped_bytes(), 4_MiB);
  one.unmap(0, 8_MiB);
  EXPECT_EQ(one.mapped_bytes(), 0u);
}

TEST_F(MappedRangeTest, AHoleHasNoMemory) {
  auto one = range();
  one.map(4_MiB, 2_MiB);
  const SharedPhysicalMemory none = one.memory_at(0);
  EXPECT_FALSE(none);
  EXPECT_EQ(none.size(), 0u);
  EXPECT_THROW(static_cast<void>(none.properties()), InvalidUse);
  EXPECT_THROW(static_cast<void>(none.memory()), InvalidUse);
  EXPECT_EQ(one.memory_at(4_MiB).properties().location, device0);
  const auto refused = one.try_append(none);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().call, "MappedRange::append");
}

TEST_F(MappedRangeTest, NamesDevicesThatAreNotThere) {
  MappedRangeOptions options = small();
  options.grants = {{Location::device(DeviceOrdinal(7)), AccessRights::read}};
  EXPECT_THROW(static_cast<void>(MappedRange::create(machine_.driver(), options)), InvalidUse);
  options.grants = {{device1, AccessRights::read}};
  EXPECT_NO_THROW(static_cast<void>(MappedRange::create(machine_.driver(), options)));
  auto one = range();
  EXPECT_THROW(one.grant(Location::device(DeviceOrdinal(7))), InvalidUse) << "also before anything is mapped";
  EXPECT_THROW(one.grant(Location::device(DeviceOrdinal(-1))), InvalidUse);
  EXPECT_EQ(one.grants().size(), 1u);
  EXPECT_NO_THROW(one.grant(device1));
}

// In the same words, whether there is memory or not.
TEST_F(MappedRangeTest, SaysWhichDeviceIsMissingAndHowManyThereAre) {
  const Location missing = Location::device(DeviceOrdinal(7));
  const auto expect_told = [&](const auto& result, std::string_view call) {
    ASSERT_FALSE(result);
    const Failure& failure = result.failure();
    EXPECT_EQ(failure.kind, ErrorKind::invalid_use) << failure.message();
    EXPECT_EQ(failure.call, call);
    EXPECT_EQ(failure.rule, "There is no device 7: the driver shows 2 devices, numbered from 0") << failure.message();
    EXPECT_NE(failure.arguments.find("device 7"), std::string::npos) << failure.message();
  };
  auto one = range();
  for (int chunks = 0; chunks < 2; ++chunks) {
    expect_told(one.try_grant({{device1}, {missing}}), "MappedRange::grant");
    expect_told(one.try_revoke(missing), "MappedRange::revoke");
    expect_told(one.try_append(2_MiB, missing), "MappedRange::append");
    EXPECT_EQ(one.grants().size(), 1u);
    one.append(2_MiB);
  }
  EXPECT_TRUE(one.try_append(2_MiB, device1));
  EXPECT_TRUE(one.try_grant({{device1}}));
  EXPECT_TRUE(one.try_revoke(device1));
  MappedRangeOptions options = small();
  options.memory.location = missing;
  expect_told(MappedRange::try_create(machine_.driver(), options), "MappedRange::create");
  options.memory.location = device0;
  options.grants = {{missing}};
  expect_told(MappedRange::try_create(machine_.driver(), options), "MappedRange::create");
}

TEST_F(MappedRangeTest, ADeviceThatIsNamedAloneMayReadAndWrite) {
  MappedRangeOptions options = small();
  options.grants = {{device1}};
  auto one = range(options);
  one.append(2_MiB);
  EXPECT_EQ(machine_.rights(one.address(), device1), AccessRights::read_write);
  EXPECT_EQ(machine_.rights(one.address(), device0), AccessRights::none);
  options.grants = {{device1, AccessRights::none}};
  auto none = range(options);
  none.append(2_MiB);
  EXPECT_EQ(machine_.rights(none.address(), device1), AccessRights::none) << "no rights are said as such";
}

TEST_F(MappedRangeTest, TakingRightsFromThoseThatHaveNoneDoesNothing) {
  emulator::Configuration configuration = test::strict_machine(3);
  configuration.no_peer_access = {{0, 2}};
  test::RangeMachine machine(configuration);
  auto one = MappedRange::create(machine.driver(), small());
  for (int chunks = 0; chunks < 2; ++chunks) {
    for (const Location& each : {Location::device(DeviceOrdinal(2)), device1, Location::host()}) {
      machine.calls();
      EXPECT_TRUE(one.try_revoke(each)) << to_string(each);
      EXPECT_TRUE(one.try_grant({{each, AccessRights::none}})) << to_string(each);
      EXPECT_EQ(machine.calls().find("cuMemSetAccess"), std::string::npos) << to_string(each);
    }
    one.append(2_MiB);
  }
  EXPECT_FALSE(one.try_grant({{Location::device(DeviceOrdinal(2)), AccessRights::read}})) << "rights are refused";
  EXPECT_TRUE(one.try_grant({{device1, AccessRights::read}, {device1, AccessRights::none}})) << "the later counts";
  EXPECT_EQ(machine.rights(one.address(), device1), AccessRights::none);
  EXPECT_TRUE(one.try_grant({{device1, AccessRights::none}, {device1, AccessRights::read}}));
  EXPECT_EQ(machine.rights(one.address(), device1), AccessRights::read);
  one.revoke(device1);
  EXPECT_EQ(machine.rights(one.address(), device1), AccessRights::none);
}

TEST_F(MappedRangeTest, AnObserverWithoutAFunctionIsRefused) {
  auto one = range();
  EXPECT_THROW(static_cast<void>(one.observe({})), InvalidUse);
  EXPECT_NO_THROW(static_cast<void>(one.observe({{}, [](std::size_t, std::size_t) {}})));
}

TEST_F(MappedRangeTest, SeveralMemoriesAreMappedWithHolesBetweenThemOrNotAtAll) {
  auto one = range();
  one.append(2_MiB);
  const auto small_one = one.source()->acquire({}, 2_MiB);
  const auto large = one.source()->acquire({}, 4_MiB);
  const std::vector<MemoryAt> places{{2_MiB, small_one}, {4_MiB, large}, {12_MiB, small_one}};
  const auto refused = [&](const std::vector<MemoryAt>& memories) {
    const auto result = one.try_map(memories);
    return !result && result.failure().kind == ErrorKind::invalid_use && one.chunks().size() == 1 &&
           one.size() == 2_MiB;
  };
  EXPECT_TRUE(refused({{4_MiB, large}, {2_MiB, small_one}})) << "out of order";
  EXPECT_TRUE(refused({{4_MiB, large}, {6_MiB, small_one}})) << "one over the other";
  EXPECT_TRUE(refused({{4_MiB, large}, {0, small_one}})) << "over a chunk";
  EXPECT_TRUE(refused({{4_MiB, large}, {8_MiB, {}}})) << "none at all";
  EXPECT_TRUE(refused({{4_MiB, large}, {9_MiB, small_one}})) << "at an odd offset";
  EXPECT_TRUE(one.try_map(std::span<const MemoryAt>()));
  for (const EntryPoint entry : {EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess})
    for (std::uint64_t call = 1; call <= (entry == EntryPoint::cuMemMap ? 3u : 2u); ++call) {
      machine_.fail(entry, call);
      EXPECT_FALSE(one.try_map(places));
      EXPECT_EQ(one.chunks().size(), 1u);
      EXPECT_EQ(one.size(), 2_MiB);
    }
  machine_.calls();
  one.map(places);
  EXPECT_EQ(machine_.calls(), "cuMemMap 3, cuMemSetAccess 2") << "neighbours are granted together";
  EXPECT_EQ(one.size(), 14_MiB);
  EXPECT_EQ(one.chunks().size(), 4u);
  EXPECT_EQ(machine_.rights(one.address() + 12_MiB, device0), AccessRights::read_write);
}

TEST_F(MappedRangeTest, RefusalsForPinsNameNoArgumentsThatNobodyGave) {
  auto one = range();
  one.append(2_MiB);
  const RangePin pin = one.pin("registered");
  const auto refused = one.try_truncate(0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().arguments.find("offset"), std::string::npos) << refused.failure().message();
  EXPECT_NE(refused.failure().arguments.find("(2 MiB mapped, 64 MiB reserved)"), std::string::npos);
  const auto half = one.try_unmap(1_MiB, 1_MiB);
  ASSERT_FALSE(half);
  EXPECT_EQ(half.failure().arguments.find("offset"), std::string::npos) << half.failure().message();
}

TEST_F(MappedRangeTest, AppendsNeverBeginInAHole) {
  auto one = range(small(4_MiB, ChunkPolicy::bounded(0.9)));
  one.append(5_MiB);
  one.truncate(0);
  one.append(3_MiB);
  const auto chunks = one.chunks();
  ASSERT_GT(chunks.size(), 1u) << "slack lies behind the border of a reservation";
  one.unmap(0, chunks[0].bytes);
  const std::size_t at = one.append(1_MiB);
  EXPECT_TRUE(one.memory_at(at)) << at;
  EXPECT_TRUE(one.memory_at(at + 1_MiB - 1));
  EXPECT_EQ(one.size(), at + 1_MiB);
}

TEST_F(MappedRangeTest, ObserversMayThrowAnythingAndRegisterOthers) {
  {
    RangeObservation observation;
    auto one = range();
    one.append(2_MiB);
    std::vector<RangeObservation> more;
    observation = one.observe({[](std::size_t, std::size_t) { throw 42; },
                               [&](std::size_t, std::size_t) {
                                 for (int i = 0; i < 10; ++i)
                                   more.push_back(one.observe({[](std::size_t, std::size_t) {}, {}}));
                                 throw 43;
                               }});
    one.append(2_MiB);
    EXPECT_EQ(more.size(), 10u);
    EXPECT_THROW(one.unmap(0, 2_MiB), int) << "an exception stops the change";
    EXPECT_EQ(one.mapped_bytes(), 4_MiB);
  }
  ASSERT_EQ(clean_up_.failures.size(), 2u) << "after the map, and before the end";
  EXPECT_EQ(clean_up_.failures[0].callback.find("RangeObserver::after_map(range at 0x"), 0u)
      << clean_up_.failures[0].message();
  EXPECT_NE(clean_up_.failures[0].callback.find(", offset = 2097152, bytes = 2097152)"), std::string::npos);
  EXPECT_EQ(clean_up_.failures[1].callback.find("RangeObserver::before_unmap(range at 0x"), 0u);
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(MappedRangeTest, ObserversSeeTheRangeThatEnds) {
  RangeObservation observation;
  auto one = range();
  one.append(2_MiB);
  const DeviceAddress address = one.address();
  DeviceAddress seen;
  observation = one.observe({[&](std::size_t, std::size_t) { seen = one.address(); }, {}});
  one = range();
  EXPECT_EQ(seen, address) << "not the one that takes its place";
}

TEST_F(MappedRangeTest, ObserversAreToldOfChunksAndOfWhatDidNotHappen) {
  auto one = range(small(64_MiB));
  one.map(4_MiB, 2_MiB);
  std::vector<std::string> heard;
  const auto note = [&](const char* what) {
    return [&heard, what](std::size_t offset, std::size_t bytes) {
      heard.push_back(std::string(what) + " " + std::to_string(offset >> 20) + "+" + std::to_string(bytes >> 20));
    };
  };
  const auto observation = one.observe({note("before"), note("after")});
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(one.try_unmap(0, 64_MiB));
  EXPECT_EQ(heard, (std::vector<std::string>{"before 4+2", "after 4+2"})) << "it is still there";
  heard.clear();
  one.unmap(0, 64_MiB);
  EXPECT_EQ(heard, (std::vector<std::string>{"before 4+2"}));
}

TEST_F(MappedRangeTest, ObserversHearThatAnotherStoppedTheChange) {
  auto one = range();
  one.append(2_MiB);
  std::vector<std::string> heard;
  const auto note = [&](const char* what) {
    return [&heard, what](std::size_t, std::size_t) { heard.emplace_back(what); };
  };
  bool stop = true;
  const auto first = one.observe({note("first before"), note("first after")});
  const auto second = one.observe({[&](std::size_t, std::size_t) {
                                     if (stop) throw std::runtime_error("not now");
                                   },
                                   note("second after")});
  const auto third = one.observe({note("third before"), note("third after")});
  EXPECT_THROW(one.unmap(0, 2_MiB), std::runtime_error);
  EXPECT_EQ(heard, (std::vector<std::string>{"first before", "first after"}));
  heard.clear();
  stop = false;
  one.unmap(0, 2_MiB);
  EXPECT_EQ(heard, (std::vector<std::string>{"first before", "third before"}));
  one.append(2_MiB);
  heard.clear();
  stop = true;
  one = range();
  EXPECT_EQ(heard, (std::vector<std::string>{"first before", "third before"})) << "the end is stopped by nobody";
  clean_up_.failures.clear();
}

TEST_F(MappedRangeTest, AnUnknownGrantIsRefusedAtOnce) {
  const Location nowhere{static_cast<LocationKind>(9), 0};
  const auto seven = static_cast<AccessRights>(7);
  auto one = range();
  const auto refused = [&](const AccessGrant& change, const char* why) {
    const auto result = one.try_grant(std::span(&change, 1));
    return !result && result.failure().kind == ErrorKind::invalid_use &&
           result.failure().rule.find(why) != std::string::npos;
  };
  EXPECT_TRUE(refused({device1, seven}, "no rights of the number 7"));
  EXPECT_TRUE(refused({nowhere, AccessRights::read}, "no such kind of location"));
  EXPECT_EQ(one.append(2_MiB), 0u);
  EXPECT_TRUE(refused({device1, seven}, "no rights of the number 7"));
  EXPECT_TRUE(refused({nowhere, AccessRights::none}, "no such kind of location"));
  one.grant(device1, AccessRights::read);
  EXPECT_EQ(one.append(2_MiB), 2_MiB);

  MappedRangeOptions options = small();
  options.grants = {{device0, seven}};
  EXPECT_THROW(range(options), InvalidUse);
  options.grants = {{nowhere, AccessRights::read}};
  EXPECT_THROW(range(options), InvalidUse);
  options.grants = {{device0, AccessRights::read}};
  EXPECT_NO_THROW(range(options));
  options.memory.location = nowhere;
  EXPECT_THROW(range(options), InvalidUse);
}

TEST_F(MappedRangeTest, AFailedQuestionForDevicesIsAFailureOfTheGrant) {
  auto one = range();
  const AccessGrant change{device1, AccessRights::read};
  machine_.fail(EntryPoint::cuDeviceGetCount, 1, abi::CUDA_ERROR_UNKNOWN);
  const auto refused = one.try_grant(std::span(&change, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().call, "cuDeviceGetCount");
  EXPECT_TRUE(one.try_grant(std::span(&change, 1)));
}

TEST_F(MappedRangeTest, FeaturesOfDeviceMemoryAreNotAskedOfTheHost) {
  MappedRangeOptions options = small();
  options.memory.compression = true;
  auto one = range(options);
  one.append(1, Location::host_numa(0));
  EXPECT_TRUE(one.properties().compression) << "nothing is known of device memory yet";
  one.append(2_MiB);
  EXPECT_TRUE(one.properties().compression);
  EXPECT_NO_THROW(one.append(2_MiB, Location::host_numa(0)));
}

TEST_F(MappedRangeTest, APolicyOfHugeChunksIsCutToWhatThereIs) {
  auto one = range(small(8_MiB, ChunkPolicy::fixed(SIZE_MAX)));
  EXPECT_EQ(one.append(1), 0u);
  EXPECT_EQ(one.mapped_bytes(), 8_MiB);
}

TEST_F(MappedRangeTest, RefusesPlacesThatAreNotThere) {
  MappedRangeOptions options = small();
  for (const Location& place :
       {Location::device(DeviceOrdinal(99)), Location::device(DeviceOrdinal(-1)), Location::host_numa(-1)}) {
    options.memory.location = place;
    EXPECT_THROW(static_cast<void>(MappedRange::create(machine_.driver(), options)), InvalidUse) << place.id;
  }
  options.memory.location = device1;
  EXPECT_NO_THROW(static_cast<void>(MappedRange::create(machine_.driver(), options)));
}

TEST_F(MappedRangeTest, MovesAsAValue) {
  auto one = range();
  one.append(2_MiB);
  const DeviceAddress address = one.address();
  MappedRange moved = std::move(one);
  EXPECT_EQ(moved.address(), address);
  moved = range();
  EXPECT_EQ(machine_.alive(), (Alive{0, 0, 1})) << "what it had is given back";
  one = std::move(moved);
  EXPECT_EQ(one.append(2_MiB), 0u);
}

TEST_F(MappedRangeTest, C38_NothingIsLeftAfterManyRanges) {
  const CurrentContext context(machine_.driver().device(DeviceOrdinal(0)));
  std::size_t free_before = 0;
  std::size_t total = 0;
  ASSERT_EQ(machine_.emulated().cuMemGetInfo(&free_before, &total), abi::CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i) {
    auto one = range(small(64_MiB, ChunkPolicy::fixed(static_cast<std::size_t>(i % 4 + 1) * 2_MiB)));
    one.append(64_MiB);
  }
  std::size_t free_after = 0;
  ASSERT_EQ(machine_.emulated().cuMemGetInfo(&free_after, &total), abi::CUDA_SUCCESS);
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(MappedRangeTest, BatchesAppendToAllRangesOrRefuseBadOnes) {
  auto keys = range();
  auto values = range();
  const RangeAppend twice[] = {{&keys, 2_MiB}, {&keys, 2_MiB}};
  EXPECT_THROW(append_all(twice), InvalidUse);
  const RangeAppend null[] = {{&keys, 2_MiB}, {nullptr, 2_MiB}};
  EXPECT_THROW(append_all(null), InvalidUse);
  EXPECT_EQ(keys.size(), 0u);
  EXPECT_EQ(machine_.alive().handles, 0u);
  const RangeAppend good[] = {{&keys, 2_MiB}, {&values, 3_MiB}};
  append_all(good);
  EXPECT_EQ(keys.size(), 2_MiB);
  EXPECT_EQ(values.size(), 3_MiB);
}

}  // namespace
}  // namespace cuvmm
