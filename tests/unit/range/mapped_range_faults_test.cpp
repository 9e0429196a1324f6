// What a range is like after a driver call has failed: as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "range_machine.hpp"
#include "recording_handler.hpp"

namespace cuvmm {
namespace {

using test::Alive;
using test::EntryPoint;

const Location device0 = Location::device(DeviceOrdinal(0));
const Location device1 = Location::device(DeviceOrdinal(1));

MappedRangeOptions pages() {
  MappedRangeOptions options;
  options.capacity = 1_GiB;
  options.chunks = ChunkPolicy::fixed(2_MiB);
  options.grants = {{device0, AccessRights::read_write}, {device1, AccessRights::read}};
  return options;
}

class MappedRangeFaults : public testing::Test {
 protected:
  // A machine whose first device is current, so that bytes can be written and read below counter and faults.
  void SetUp() override {
    abi::CUcontext context = nullptr;
    ASSERT_EQ(machine_.emulated().cuDevicePrimaryCtxRetain(&context, 0), abi::CUDA_SUCCESS);
    ASSERT_EQ(machine_.emulated().cuCtxSetCurrent(context), abi::CUDA_SUCCESS);
  }
  void TearDown() override {
    machine_.emulated().cuCtxSetCurrent(nullptr);
    machine_.emulated().cuDevicePrimaryCtxRelease(0);
  }

  void write(const MappedRange& range, std::size_t offset, std::uint64_t tag) {
    ASSERT_EQ(machine_.emulated().cuMemcpyHtoD((range.address() + offset).value, &tag, sizeof tag), abi::CUDA_SUCCESS)
        << machine_.emulated().explanation();
  }
  std::uint64_t read(const MappedRange& range, std::size_t offset) {
    std::uint64_t tag = 0;
    EXPECT_EQ(machine_.emulated().cuMemcpyDtoH(&tag, (range.address() + offset).value, sizeof tag), abi::CUDA_SUCCESS)
        << machine_.emulated().explanation();
    return tag;
  }
  // All that can be told of a range from outside, and of its pages.
  std::string state(const MappedRange& range) {
    std::string text = std::to_string(range.size()) + "/" + std::to_string(range.mapped_bytes()) + " of " +
                       std::to_string(range.capacity()) + " generation " + std::to_string(range.generation());
    for (const AccessGrant& each : range.grants())
      text += " " + to_string(each.location) + "=" + std::to_string(static_cast<int>(each.rights));
    for (const ChunkInfo& each : range.chunks())
      text += " [" + std::to_string(each.offset >> 20) + "+" + std::to_string(each.bytes >> 20) + ":" +
              std::to_string(read(range, each.offset)) + "," +
              std::to_string(static_cast<int>(machine_.rights(range.address() + each.offset, device1))) + "]";
    return text;
  }

  test::RecordingHandler clean_up_;
  test::RangeMachine machine_{test::strict_machine(2)};
};

TEST_F(MappedRangeFaults, C34_GrowingBySixteenPagesFailsAtEachCallAndLeavesTheRangeAsItWas) {
  auto range = MappedRange::create(machine_.driver(), pages());
  range.append(4_MiB);
  write(range, 0, 11);
  write(range, 2_MiB, 12);
  const std::string before = state(range);
  const Alive alive = machine_.alive();
  for (const EntryPoint entry : {EntryPoint::cuMemCreate, EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess}) {
    const std::uint64_t calls = entry == EntryPoint::cuMemSetAccess ? 1 : 16;
    for (std::uint64_t call = 1; call <= calls; ++call) {
      machine_.fail(entry, call);
      const auto grown = range.try_append(32_MiB);
      ASSERT_FALSE(grown) << driver::name(entry) << " " << call;
      EXPECT_EQ(grown.failure().call, driver::name(entry));
      EXPECT_EQ(state(range), before) << driver::name(entry) << " " << call;
      EXPECT_EQ(machine_.alive(), alive) << driver::name(entry) << " " << call;
    }
    machine_.faults().clear();
  }
  EXPECT_TRUE(clean_up_.failures.empty());
  EXPECT_EQ(range.append(32_MiB), 4_MiB) << "a retry works";
  EXPECT_EQ(range.chunks().size(), 18u);
}

TEST_F(MappedRangeFaults, C34_GrowthThatFailsGivesTheAddressesBackThatItReserved) {
  MappedRangeOptions options = pages();
  options.capacity = 4_MiB;
  auto range = MappedRange::create(machine_.driver(), options);
  auto room_behind = AddressReservation::create(machine_.driver(), 1_GiB);
  auto other = MappedRange::create(machine_.driver(), options);
  room_behind.free();
  range.append(4_MiB);
  const Alive alive = machine_.alive();
  const auto refused_memory = range.source()->acquire({.location = device0}, 8_MiB);
  const RangeAppend both[] = {{&other, 8_MiB}, {&range, 8_MiB}};
  const std::vector<std::pair<const char*, std::function<bool()>>> changes{
      {"append", [&] { return range.try_append(8_MiB).has_value(); }},
      {"append memory", [&] { return range.try_append(refused_memory).has_value(); }},
      {"map", [&] { return range.try_map(4_MiB, 8_MiB).has_value(); }},
      {"append_all", [&] { return try_append_all(both).has_value(); }}};
  for (const auto& [name, change] : changes) {
    for (const EntryPoint entry : {EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess}) {
      const Alive before = machine_.alive();
      machine_.fail(entry, std::string_view(name) == "append_all" && entry == EntryPoint::cuMemSetAccess ? 2 : 1);
      EXPECT_FALSE(change()) << name;
      EXPECT_EQ(range.capacity(), 4_MiB) << name;
      EXPECT_EQ(other.capacity(), 4_MiB) << name;
      EXPECT_EQ(machine_.alive(), before) << name;
      machine_.faults().clear();
    }
  }
  EXPECT_EQ(machine_.alive().reservations, alive.reservations);
  EXPECT_TRUE(clean_up_.failures.empty());
  EXPECT_EQ(range.append(8_MiB), 4_MiB) << "a retry works";
  EXPECT_GE(range.capacity(), 12_MiB);
  EXPECT_EQ(machine_.alive().reservations, alive.reservations + 1);

  // Addresses that cannot be freed, and those that a quarantine needs, stay the range's.
  machine_.fail(EntryPoint::cuMemMap);
  machine_.fail(EntryPoint::cuMemAddressFree, 1, abi::CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(other.try_append(8_MiB));
  EXPECT_GE(other.capacity(), 8_MiB);
  EXPECT_EQ(clean_up_.failures.size(), 1u);
  machine_.faults().clear();
  EXPECT_EQ(other.append(8_MiB), 0u);
}

TEST_F(MappedRangeFaults, AddressesOfAQuarantineStayWhereGrowthFails) {
  MappedRangeOptions options = pages();
  options.capacity = 4_MiB;
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(4_MiB);
  machine_.fail(EntryPoint::cuMemSetAccess);
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN, true);
  EXPECT_FALSE(range.try_append(4_MiB));
  EXPECT_EQ(range.quarantined().size(), 2u);
  EXPECT_GE(range.capacity(), 8_MiB);
  machine_.faults().clear();
  EXPECT_EQ(range.append(4_MiB), 4_MiB);
  EXPECT_TRUE(range.quarantined().empty());
}

TEST_F(MappedRangeFaults, C34_DestructorsNeverThrow) {
  for (const EntryPoint entry : {EntryPoint::cuMemUnmap, EntryPoint::cuMemRelease, EntryPoint::cuMemAddressFree}) {
    {
      auto range = MappedRange::create(machine_.driver(), pages());
      range.append(4_MiB);
      machine_.fail(entry, 1, abi::CUDA_ERROR_UNKNOWN, true);
    }
    EXPECT_FALSE(clean_up_.failures.empty()) << driver::name(entry);
    clean_up_.failures.clear();
    machine_.faults().clear();
  }
}

TEST_F(MappedRangeFaults, AMapThatIsReportedAsFailedDoesNotStay) {
  auto range = MappedRange::create(machine_.driver(), pages());
  const Alive alive = machine_.alive();
  machine_.faults().inject({EntryPoint::cuMemMap, 2, abi::CUDA_ERROR_UNKNOWN, driver::FaultTiming::after, false});
  EXPECT_FALSE(range.try_append(6_MiB));
  EXPECT_EQ(machine_.alive(), alive);
  EXPECT_EQ(range.append(6_MiB), 0u);
}

TEST_F(MappedRangeFaults, AMapThatIsReportedAsFailedAndCannotBeUndoneIsInQuarantine) {
  auto range = MappedRange::create(machine_.driver(), pages());
  machine_.faults().inject({EntryPoint::cuMemMap, 2, abi::CUDA_ERROR_UNKNOWN, driver::FaultTiming::after, false});
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN);  // of that one, before those that were mapped well
  EXPECT_FALSE(range.try_append(6_MiB));
  ASSERT_EQ(range.quarantined().size(), 1U);
  EXPECT_EQ(range.quarantined()[0].offset, 2_MiB);
  EXPECT_EQ(clean_up_.failures.size(), 1U);
  clean_up_.failures.clear();
  EXPECT_EQ(machine_.alive().handles, 1U) << "its memory stays with it";
  EXPECT_EQ(range.append(6_MiB), 0U) << "which unmaps it first";
  EXPECT_TRUE(range.quarantined().empty());
  range.close();
  EXPECT_EQ(machine_.alive(), Alive{});
}

// Where nothing was mapped there is nothing to undo, and nothing to complain of.
TEST_F(MappedRangeFaults, AMapThatFailedIsNotInQuarantine) {
  auto range = MappedRange::create(machine_.driver(), pages());
  machine_.fail(EntryPoint::cuMemMap, 2, abi::CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(range.try_append(6_MiB));
  EXPECT_TRUE(range.quarantined().empty());
  EXPECT_TRUE(clean_up_.failures.empty());
  EXPECT_EQ(machine_.alive().handles, 0U);
}

TEST_F(MappedRangeFaults, C35_KeysAndValuesGrowTogetherOrNotAtAll) {
  auto keys = MappedRange::create(machine_.driver(), pages());
  auto values = MappedRange::create(machine_.driver(), pages());
  keys.append(2_MiB);
  values.append(4_MiB);
  const std::string before = state(keys) + state(values);
  const Alive alive = machine_.alive();
  const RangeAppend both[] = {{&keys, 32_MiB}, {&values, 32_MiB}};
  for (const EntryPoint entry : {EntryPoint::cuMemCreate, EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess}) {
    const std::uint64_t calls = entry == EntryPoint::cuMemSetAccess ? 2 : 32;
    for (std::uint64_t call = 1; call <= calls; ++call) {
      machine_.fail(entry, call);
      const auto grown = try_append_all(both);
      ASSERT_FALSE(grown) << driver::name(entry) << " " << call;
      EXPECT_NE(grown.failure().arguments.find(call > calls / 2 ? "appends[1] of 2" : "appends[0] of 2"),
                std::string::npos)
          << grown.failure().arguments;
      EXPECT_EQ(state(keys) + state(values), before) << driver::name(entry) << " " << call;
      EXPECT_EQ(machine_.alive(), alive) << driver::name(entry) << " " << call;
    }
  }
  append_all(both);
  EXPECT_EQ(keys.size(), 34_MiB);
  EXPECT_EQ(values.size(), 36_MiB);
}

TEST_F(MappedRangeFaults, C36_APageWhoseUndoFailsIsQuarantinedAndNeverHandedOut) {
  PhysicalSourceOptions recycling;
  recycling.recycle_limit = 1_GiB;
  MappedRangeOptions options = pages();
  options.source = PhysicalSource::create(machine_.driver(), recycling);
  auto first = MappedRange::create(machine_.driver(), options);
  auto second = MappedRange::create(machine_.driver(), options);
  const RangeAppend layers[] = {{&first, 4_MiB}, {&second, 4_MiB}};
  machine_.fail(EntryPoint::cuMemMap, 4);                                   // the second page of the second layer
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN, true);  // and no page can be taken back
  EXPECT_FALSE(try_append_all(layers));
  EXPECT_FALSE(clean_up_.failures.empty());
  EXPECT_EQ(first.mapped_bytes() + second.mapped_bytes(), 0u) << "not part of the content";
  ASSERT_EQ(first.quarantined().size(), 2u);
  ASSERT_EQ(second.quarantined().size(), 1u);
  EXPECT_EQ(options.source->counters().recyclable_bytes, 2_MiB) << "the page that was not mapped; none of the others";
  EXPECT_FALSE(first.try_append(2_MiB)) << "its addresses are not free";
  EXPECT_EQ(first.size(), 0u);
  // When the driver gives the pages up, the range can be used again, and the pages go to the driver.
  machine_.faults().clear();
  EXPECT_EQ(first.append(4_MiB), 0u);
  EXPECT_TRUE(first.quarantined().empty());
  EXPECT_EQ(options.source->counters().recyclable_bytes, 0u) << "2 MiB were used, and none came from quarantine";
}

TEST_F(MappedRangeFaults, AQuarantineThatLastsIsLeftToTheDriver) {
  {
    auto range = MappedRange::create(machine_.driver(), pages());
    machine_.fail(EntryPoint::cuMemSetAccess, 1);
    machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN, true);
    EXPECT_FALSE(range.try_append(4_MiB));
    EXPECT_EQ(range.quarantined().size(), 2u);
    EXPECT_THROW(range.close(), Error);
    EXPECT_EQ(range.quarantined().size(), 2u) << "still owned";
  }
  EXPECT_EQ(machine_.alive(), (Alive{2, 2, 1})) << "the mappings and their addresses, which nobody can free";
}

TEST_F(MappedRangeFaults, ObserversHearOfACloseOnlyWhenItCanBegin) {
  auto range = MappedRange::create(machine_.driver(), pages());
  range.append(4_MiB);
  std::vector<std::string> heard;
  const auto note = [&](const char* what) {
    return [&heard, what](std::size_t offset, std::size_t bytes) {
      heard.push_back(what + std::to_string(offset >> 20) + "+" + std::to_string(bytes >> 20));
    };
  };
  const auto observation = range.observe({note("before "), note("after ")});
  machine_.fail(EntryPoint::cuMemSetAccess, 1);
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN, true);
  EXPECT_FALSE(range.try_append(2_MiB));
  ASSERT_EQ(range.quarantined().size(), 1u);
  EXPECT_THROW(range.close(), Error);
  EXPECT_EQ(heard, std::vector<std::string>{}) << "of the quarantine, which observers know nothing of";
  machine_.faults().clear();
  machine_.fail(EntryPoint::cuMemUnmap, 2, abi::CUDA_ERROR_UNKNOWN);  // of both chunks together
  machine_.fail(EntryPoint::cuMemUnmap, 4, abi::CUDA_ERROR_UNKNOWN);  // and of the second alone
  EXPECT_THROW(range.close(), Error);
  EXPECT_EQ(heard, (std::vector<std::string>{"before 0+4", "after 2+2"})) << "what stays";
  EXPECT_EQ(range.chunks().size(), 1u);
  heard.clear();
  range.close();
  EXPECT_EQ(heard, (std::vector<std::string>{"before 2+2"}));
}

TEST_F(MappedRangeFaults, AFailedGrantChangesNoRight) {
  auto range = MappedRange::create(machine_.driver(), pages());
  range.append(2_MiB);
  range.map(8_MiB, 2_MiB);
  range.map(16_MiB, 2_MiB);
  const std::string before = state(range);
  for (std::uint64_t call = 1; call <= 3; ++call) {
    machine_.fail(EntryPoint::cuMemSetAccess, call, abi::CUDA_ERROR_UNKNOWN);
    const AccessGrant change{device1, AccessRights::read_write};
    EXPECT_FALSE(range.try_grant(std::span(&change, 1))) << call;
    EXPECT_EQ(state(range), before) << call;
    machine_.fail(EntryPoint::cuMemSetAccess, call, abi::CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(range.try_revoke(device1)) << call;
    EXPECT_EQ(state(range), before) << call;
  }
  range.grant(device1, AccessRights::read_write);
  EXPECT_NE(state(range), before);
}

TEST_F(MappedRangeFaults, RightsThatCouldNotBeTakenBackAreTakenByRevoke) {
  MappedRangeOptions options = pages();
  options.grants = {{device0}};
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(2_MiB);
  range.map(8_MiB, 2_MiB);
  machine_.fail(EntryPoint::cuMemSetAccess, 2, abi::CUDA_ERROR_UNKNOWN, true);  // of the second chunk, and of undoing
  EXPECT_FALSE(range.try_grant({{device1}}));
  EXPECT_FALSE(clean_up_.failures.empty());
  machine_.faults().clear();
  ASSERT_EQ(machine_.rights(range.address(), device1), AccessRights::read_write) << "though the range knows of none";
  range.revoke(device1);
  EXPECT_EQ(machine_.rights(range.address(), device1), AccessRights::none);
}

TEST_F(MappedRangeFaults, AGrantThatIsReportedAsFailedLeavesNoRight) {
  auto range = MappedRange::create(machine_.driver(), pages());
  range.append(2_MiB);
  range.map(8_MiB, 2_MiB);
  range.map(16_MiB, 2_MiB);
  const std::string before = state(range);
  const AccessGrant change{device1, AccessRights::read_write};
  for (std::uint64_t call = 1; call <= 3; ++call) {
    const driver::Fault after{EntryPoint::cuMemSetAccess, call, abi::CUDA_ERROR_UNKNOWN, driver::FaultTiming::after,
                              false};
    machine_.faults().inject(after);
    EXPECT_FALSE(range.try_grant(std::span(&change, 1))) << call;
    EXPECT_EQ(state(range), before) << call;
    machine_.faults().inject(after);
    EXPECT_FALSE(range.try_revoke(device1)) << call;
    EXPECT_EQ(state(range), before) << call;
  }
  // A refusal is no doubt: what was not done is not undone.
  machine_.fail(EntryPoint::cuMemSetAccess, 1, abi::CUDA_ERROR_INVALID_VALUE);
  machine_.calls();
  EXPECT_FALSE(range.try_grant(std::span(&change, 1)));
  EXPECT_EQ(machine_.calls(), "cuDeviceGetCount 1, cuMemSetAccess 1") << "asked whether the device is there";
  EXPECT_TRUE(range.try_grant(std::span(&change, 1)));
  EXPECT_NE(state(range), before);
}

TEST_F(MappedRangeFaults, AddressesThatWereFreedAreNotTheRangesAnyMore) {
  MappedRangeOptions options = pages();
  options.capacity = 4_MiB;
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(6_MiB);
  ASSERT_EQ(machine_.alive().reservations, 2u);
  machine_.fail(EntryPoint::cuMemAddressFree, 2, abi::CUDA_ERROR_UNKNOWN);  // of the first reservation
  EXPECT_THROW(range.close(), Error);
  EXPECT_EQ(range.capacity(), 4_MiB);
  {
    const auto others = AddressReservation::create(machine_.driver(), 4_MiB, 0, range.address() + 4_MiB);
    ASSERT_EQ(others.address(), range.address() + 4_MiB);
    const auto refused = range.try_append(6_MiB);
    ASSERT_FALSE(refused) << "it would lie in the addresses of another";
    EXPECT_EQ(refused.failure().kind, ErrorKind::out_of_address_space);
  }
  EXPECT_EQ(range.append(6_MiB), 0u) << "they are free again";
  range.close();
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(MappedRangeFaults, WhatIsNotAskedForNeedsNoAddressesOutOfQuarantine) {
  MappedRangeOptions options = pages();
  options.chunks = ChunkPolicy::geometric();
  auto range = MappedRange::create(machine_.driver(), options);
  range.append(8_MiB);
  machine_.fail(EntryPoint::cuMemSetAccess);
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN, true);
  EXPECT_FALSE(range.try_map(12_MiB, 2_MiB));
  ASSERT_EQ(range.quarantined().size(), 1u);
  EXPECT_EQ(range.append(2_MiB), 8_MiB) << "of the 8 MiB that the policy asks for, 4 are free";
  EXPECT_EQ(range.mapped_bytes(), 12_MiB);
  EXPECT_FALSE(range.try_append(4_MiB)) << "these are needed";
  machine_.faults().clear();
  EXPECT_EQ(range.append(4_MiB), 10_MiB);
}

TEST_F(MappedRangeFaults, AFailedUnmapLeavesTheChunks) {
  auto range = MappedRange::create(machine_.driver(), pages());
  range.append(6_MiB);
  for (std::size_t i = 0; i < 3; ++i) write(range, i * 2_MiB, 20 + i);
  const std::string before = state(range);
  machine_.fail(EntryPoint::cuMemUnmap, 1, abi::CUDA_ERROR_UNKNOWN, true);
  EXPECT_FALSE(range.try_unmap(0, 6_MiB));
  EXPECT_FALSE(range.try_truncate(1));
  EXPECT_THROW(range.close(), Error);
  machine_.faults().clear();
  EXPECT_EQ(range.mapped_bytes(), 6_MiB);
  EXPECT_EQ(read(range, 4_MiB), 22u);
  range.close();
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(MappedRangeFaults, AFailedReplacePutsTheOldMemoryBack) {
  auto range = MappedRange::create(machine_.driver(), pages());
  range.append(6_MiB);
  for (std::size_t i = 0; i < 3; ++i) write(range, i * 2_MiB, 30 + i);
  const auto fresh = range.source()->acquire({}, 2_MiB);
  for (const EntryPoint entry : {EntryPoint::cuMemUnmap, EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess}) {
    machine_.fail(entry, 1, abi::CUDA_ERROR_UNKNOWN);
    const auto replaced = range.try_replace(2_MiB, fresh);
    ASSERT_FALSE(replaced) << driver::name(entry);
    EXPECT_EQ(replaced.failure().call, driver::name(entry));
    EXPECT_EQ(read(range, 2_MiB), 31u) << driver::name(entry);
    EXPECT_EQ(machine_.rights(range.address() + 2_MiB, device1), AccessRights::read) << driver::name(entry);
    EXPECT_EQ(range.mapped_bytes(), 6_MiB);
  }
  // Where not even that can be done the failure tells so, and the rest of the range is whole.
  machine_.fail(EntryPoint::cuMemMap, 1, abi::CUDA_ERROR_UNKNOWN, true);
  const auto lost = range.try_replace(2_MiB, fresh);
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.failure().rule.find("nothing is mapped there now"), std::string::npos);
  machine_.faults().clear();
  EXPECT_EQ(range.mapped_bytes(), 4_MiB);
  EXPECT_EQ(read(range, 4_MiB), 32u);
  range.map(2_MiB, fresh);
  EXPECT_EQ(range.mapped_bytes(), 6_MiB);
}

// --- Random walks: every step may fail anywhere; the range must always be what a simple model says.

struct Model {
  std::map<std::size_t, std::pair<std::size_t, std::uint64_t>> chunks;  // offset -> bytes, tag
  std::size_t size = 0;
};

class RandomWalk : public MappedRangeFaults {
 protected:
  struct Subject {
    MappedRange range;
    Model model;
  };

  std::size_t draw(std::size_t below) { return random_() % below; }

  // A fault at one of the next calls, in three of four steps.
  bool maybe_fault() {
    machine_.faults().clear();
    if (draw(4) == 0) return false;
    constexpr EntryPoint points[] = {EntryPoint::cuMemCreate, EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess};
    machine_.fail(points[draw(3)], 1 + draw(4));
    return true;
  }

  // Notes the chunks that the range has and the model does not know, with a new tag in each.
  void adopt_new(Subject& subject) {
    machine_.faults().clear();
    for (const ChunkInfo& each : subject.range.chunks()) {
      if (subject.model.chunks.contains(each.offset)) continue;
      write(subject.range, each.offset, ++last_tag_);
      subject.model.chunks[each.offset] = {each.bytes, last_tag_};
    }
    subject.model.size = subject.range.size();
  }

  void step(Subject& subject);
  void check(const Subject& subject) {
    const auto chunks = subject.range.chunks();
    ASSERT_EQ(chunks.size(), subject.model.chunks.size());
    ASSERT_EQ(subject.range.size(), subject.model.size);
    for (const ChunkInfo& each : chunks) {
      const auto found = subject.model.chunks.find(each.offset);
      ASSERT_TRUE(found != subject.model.chunks.end());
      ASSERT_EQ(each.bytes, found->second.first);
      ASSERT_EQ(read(subject.range, each.offset), found->second.second) << "at " << each.offset;
      for (const AccessGrant& grant : subject.range.grants())
        ASSERT_EQ(machine_.rights(subject.range.address() + each.offset, grant.location), grant.rights);
    }
  }

  std::mt19937 random_;
  std::uint64_t last_tag_ = 0;
};

void RandomWalk::step(Subject& subject) {
  MappedRange& range = subject.range;
  Model& model = subject.model;
  const bool fault = maybe_fault();
  const auto some_chunk = [&] { return std::next(model.chunks.begin(), static_cast<long>(draw(model.chunks.size()))); };
  switch (draw(6)) {
    case 0:
    case 1: {
      const auto grown = range.try_append(1 + draw(12_MiB));
      ASSERT_TRUE(grown || fault) << grown.failure().message();
      if (grown) adopt_new(subject);
      break;
    }
    case 2: {
      const auto mapped = range.try_map(draw(64) * 2_MiB, (1 + draw(4)) * 2_MiB);
      if (mapped) adopt_new(subject);
      break;
    }
    case 3: {
      if (model.chunks.empty()) break;
      const auto chunk = some_chunk();
      ASSERT_TRUE(range.try_unmap(chunk->first, chunk->second.first));
      model.chunks.erase(chunk);
      break;
    }
    case 4: {
      if (model.chunks.empty()) break;
      const auto chunk = some_chunk();
      machine_.faults().clear();
      const auto fresh = range.source()->acquire({}, chunk->second.first);
      const bool failing = draw(2) == 0;
      if (failing) machine_.fail(draw(2) == 0 ? EntryPoint::cuMemMap : EntryPoint::cuMemSetAccess);
      const auto replaced = range.try_replace(chunk->first, fresh);
      ASSERT_EQ(replaced.has_value(), !failing);
      if (replaced) {
        write(range, chunk->first, ++last_tag_);
        chunk->second.second = last_tag_;
      }
      break;
    }
    default: {
      const AccessGrant change{device1, draw(2) == 0 ? AccessRights::read : AccessRights::read_write};
      const bool granted = range.try_grant(std::span(&change, 1)).has_value();
      ASSERT_TRUE(granted || fault);
      break;
    }
  }
  machine_.faults().clear();
}

TEST_F(RandomWalk, TenThousandWalksLeaveNothingAndLoseNothing) {
  const int walks = 10'000;
  MappedRangeOptions options = pages();
  options.grants = {{device0, AccessRights::read_write}, {device1, AccessRights::read}};
  const ChunkPolicy policies[] = {ChunkPolicy::exact(), ChunkPolicy::fixed(2_MiB), ChunkPolicy::fixed(6_MiB),
                                  ChunkPolicy::geometric(8_MiB), ChunkPolicy::bounded(0.3)};
  PhysicalSourceOptions recycling;
  for (int walk = 0; walk < walks; ++walk) {
    SCOPED_TRACE("walk " + std::to_string(walk));
    random_.seed(static_cast<unsigned>(walk));
    options.chunks = policies[draw(std::size(policies))];
    options.capacity = (1 + draw(64)) * 2_MiB;  // so that some grow past their end
    recycling.recycle_limit = draw(2) * 16_MiB;
    options.source = PhysicalSource::create(machine_.driver(), recycling);
    {
      Subject subject{MappedRange::create(machine_.driver(), options), {}};
      for (int i = 0; i < 8; ++i) {
        step(subject);
        check(subject);
        if (HasFatalFailure()) return;
      }
    }
    options.source.reset();
    ASSERT_EQ(machine_.alive(), Alive{});
  }
  for (const Failure& each : clean_up_.failures) ADD_FAILURE() << each.message();
}

}  // namespace
}  // namespace cuvmm
