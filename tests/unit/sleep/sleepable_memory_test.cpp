// Groups of ranges that give their memory back and wake with it, on the strict emulated driver.
#include "cuvmm/sleepable_memory.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "../../sanitizers.hpp"
#include "driver/decorator.hpp"
#include "range/range_machine.hpp"
#include "recording_handler.hpp"

namespace cuvmm {
namespace {

using namespace test;
using namespace std::chrono_literals;

using Bytes = std::vector<std::byte>;

emulator::Configuration machine_of(std::size_t memory, int devices = 2) {
  emulator::Configuration configuration = strict_machine(devices);
  configuration.device_memory = memory;
  configuration.profile.device_memory_reserved = 0;
  return configuration;
}

class SleepableMemoryTest : public testing::Test {
 protected:
  MappedRange range_of(std::size_t bytes, MappedRangeOptions options = {}) {
    options.capacity = 64_MiB;
    options.chunks = ChunkPolicy::fixed(2_MiB);
    auto range = MappedRange::create(machine_.driver(), options);
    range.append(bytes);
    return range;
  }
  SleepableMemory sleepable(SleepableMemoryOptions options = {}) {
    options.staging_bytes = 1_MiB;  // less than a chunk
    options.copy_threads = 2;
    return SleepableMemory::create(machine_.driver(), options);
  }
  // Whether that is what the range holds from the offset on. (Comparing vectors would print megabytes.)
  static bool holds(const MappedRange& range, const Bytes& content, std::size_t offset = 0) {
    Bytes seen(content.size());
    copy_from_device(seen, range, offset);
    return std::memcmp(seen.data(), content.data(), content.size()) == 0;
  }
  template <class Call>
  static Failure refusal_of(Call&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.failure();
    }
    ADD_FAILURE() << "nothing was refused";
    return {};
  }

  RecordingHandler clean_up_;
  RangeMachine machine_{machine_of(256_MiB)};
  CurrentContext context_{machine_.driver().device(DeviceOrdinal(0))};
};

class SleepingContentTest : public SleepableMemoryTest,
                            public testing::WithParamInterface<std::tuple<SleepingContent, bool>> {};

TEST_P(SleepingContentTest, C48_AddressContentRightsAndOrderComeBackWithOtherPages) {
  const auto [kind, keep] = GetParam();
  const Location peer = Location::device(DeviceOrdinal(1));
  const Alive before = machine_.alive();
  auto memory = sleepable();
  MappedRangeOptions options;
  options.grants = {{Location::device(DeviceOrdinal(0)), AccessRights::read_write}, {peer, AccessRights::read}};
  auto mapped = range_of(5_MiB, options);
  mapped.append(3_MiB, peer);  // behind the last chunk: the content has 9 MiB
  const Bytes content = pattern(mapped.size(), 7);
  copy_to_device(mapped, 0, content);
  auto range = memory.add("weights", std::move(mapped), {.content = kind, .keep_backup = keep}, "layers");
  const DeviceAddress address = range.address();
  for (int round = 0; round < 3; ++round) {
    const auto generation = range.range().generation();
    const auto chunks = range.range().chunks();
    const SleepReport slept = memory.sleep("weights");
    EXPECT_EQ(slept.ranges, 1U);
    EXPECT_EQ(slept.bytes_given_back, 10_MiB);
    EXPECT_EQ(slept.bytes_held_by_others, 0U);
    EXPECT_EQ(slept.bytes_saved, content.size());
    EXPECT_EQ(machine_.alive().handles, before.handles);
    EXPECT_EQ(machine_.alive().mappings, before.mappings);
    EXPECT_TRUE(range.asleep());
    const WakeReport woke = memory.wake("weights");
    EXPECT_EQ(woke.ranges, 1U);
    EXPECT_EQ(woke.bytes_mapped, 10_MiB);
    EXPECT_EQ(woke.bytes_restored, content.size());
    EXPECT_TRUE(woke.lost.empty());
    EXPECT_EQ(range.range().address(), address);
    EXPECT_GT(range.range().generation(), generation);
    ASSERT_EQ(range.range().chunks().size(), chunks.size());
    for (std::size_t index = 0; index < chunks.size(); ++index) {
      EXPECT_EQ(range.range().chunks()[index].offset, chunks[index].offset);
      EXPECT_EQ(range.range().chunks()[index].bytes, chunks[index].bytes);
      EXPECT_EQ(range.range().chunks()[index].location, chunks[index].location);
    }
    EXPECT_TRUE(holds(range.range(), content));
    EXPECT_EQ(machine_.rights(address, peer), AccessRights::read);
    EXPECT_EQ(machine_.rights(address + 8_MiB, peer), AccessRights::read) << "its own memory, for which it got more";
    const SleepHoldings held = memory.holdings();
    EXPECT_EQ(held.awake_bytes, 10_MiB);
    EXPECT_EQ(held.asleep_bytes, 0U);
    EXPECT_EQ(held.pinned_bytes + held.pageable_bytes + held.file_bytes, keep ? content.size() : 0U);
  }
  for (const Failure& each : clean_up_.failures) ADD_FAILURE() << each.message();
}

INSTANTIATE_TEST_SUITE_P(Kept, SleepingContentTest,
                         testing::Combine(testing::Values(SleepingContent::pinned, SleepingContent::pageable,
                                                          SleepingContent::file),
                                          testing::Bool()),
                         [](const auto& test) {
                           return std::string(to_string(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) ? "AndKept" : "");
                         });

TEST_F(SleepableMemoryTest, ADirectoryThatIsNoneIsToldAsThat) {
  for (const auto& [directory, why] :
       {std::pair{"/no/such/directory", "No such file or directory"}, std::pair{"/dev/null", "Not a directory"}}) {
    auto memory = sleepable();
    auto range = memory.add("group", range_of(2_MiB), {.content = SleepingContent::file, .directory = directory});
    const Failure refused = refusal_of([&] { memory.sleep("group"); });
    EXPECT_EQ(refused.kind, ErrorKind::invalid_use) << refused.message();
    for (const char* const part : {directory, why, "SleepPolicy::directory"})
      EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
    EXPECT_EQ(refused.message().find("driver failure"), std::string::npos) << refused.message();
    EXPECT_FALSE(range.asleep());
  }
  auto memory = sleepable();
  auto range = memory.add("group", range_of(2_MiB), {.content = SleepingContent::file, .directory = "/tmp"});
  EXPECT_NO_THROW(memory.sleep("group"));
  EXPECT_TRUE(range.asleep());
}

TEST_F(SleepableMemoryTest, C04_WhatSleepsIsRefusedBeforeItIsUsedAndOthersAreNot) {
  auto memory = sleepable();
  auto weights = memory.add("weights", range_of(4_MiB));
  auto cache = memory.add("cache", range_of(2_MiB), {.content = SleepingContent::discarded}, "keys");
  memory.sleep({"weights", "cache"});
  EXPECT_EQ(memory.state("weights"), GroupState::asleep);
  memory.wake("weights");
  EXPECT_EQ(memory.state("weights"), GroupState::awake);
  EXPECT_EQ(memory.state("cache"), GroupState::asleep);
  const Failure refused = refusal_of([&] { static_cast<void>(cache.range()); });
  EXPECT_EQ(refused.kind, ErrorKind::invalid_use);
  EXPECT_NE(refused.message().find("range 'keys' of group 'cache'"), std::string::npos) << refused.message();
  EXPECT_NE(refused.way_out.find("wake(\"cache\")"), std::string::npos) << refused.message();
  copy_to_device(weights.range(), 0, pattern(4096, 1));
  memory.wake("cache");
  EXPECT_NO_THROW(copy_to_device(cache.range(), 0, pattern(4096, 1)));
  EXPECT_EQ(memory.tags(), (std::vector<std::string>{"cache", "weights"}));
}

TEST_F(SleepableMemoryTest, C08_WhatIsDiscardedIsNamedAndFilledWhereThatIsAsked) {
  auto memory = sleepable({.poison = 0xD5});
  auto kept = memory.add("all", range_of(2_MiB), {.content = SleepingContent::pageable}, "kept");
  auto lost = memory.add("all", range_of(3_MiB), {.content = SleepingContent::discarded}, "lost");
  const Bytes content = pattern(2_MiB, 3);
  copy_to_device(kept.range(), 0, content);
  copy_to_device(lost.range(), 0, pattern(3_MiB, 4));
  EXPECT_EQ(memory.sleep("all").bytes_saved, 2_MiB);
  EXPECT_EQ(memory.holdings().pageable_bytes, 2_MiB);
  EXPECT_EQ(memory.holdings().asleep_bytes, 6_MiB);
  const WakeReport woke = memory.wake("all");
  ASSERT_EQ(woke.lost.size(), 1U);
  EXPECT_EQ(woke.lost[0].name, "lost");
  EXPECT_EQ(woke.lost[0].address, lost.address());
  EXPECT_EQ(woke.lost[0].bytes, 3_MiB);
  EXPECT_TRUE(holds(kept.range(), content));
  EXPECT_TRUE(holds(lost.range(), Bytes(3_MiB, std::byte{0xD5})));
}

TEST_F(SleepableMemoryTest, SleepingAndWakingTwiceChangesNothing) {
  auto memory = sleepable();
  auto range = memory.add("group", range_of(2_MiB));
  EXPECT_EQ(memory.wake("group").ranges, 0U) << "it is awake";
  EXPECT_EQ(memory.sleep("group").ranges, 1U);
  machine_.calls();
  const SleepReport again = memory.sleep({"group", "group"});
  EXPECT_EQ(again.ranges + again.bytes_given_back + again.bytes_saved, 0U);
  EXPECT_EQ(machine_.calls(), "");
  EXPECT_EQ(memory.wake({"group", "group"}).ranges, 1U);
  EXPECT_EQ(memory.wake("group").ranges, 0U);
}

TEST_F(SleepableMemoryTest, C52_DiscardingAndWakingTakeTheFewestCalls) {
  auto memory = sleepable();
  auto range = memory.add("group", range_of(6_MiB), {.content = SleepingContent::discarded});
  machine_.calls();
  memory.sleep("group");
  EXPECT_EQ(machine_.calls(), "cuMemRelease 3, cuMemUnmap 1");
  memory.wake("group");
  EXPECT_EQ(machine_.calls(), "cuMemCreate 3, cuMemMap 3, cuMemSetAccess 3");
}

TEST_F(SleepableMemoryTest, AnUnknownGroupIsNamedWithThoseThatThereAre) {
  auto memory = sleepable();
  EXPECT_NE(refusal_of([&] { memory.sleep("weights"); }).way_out.find("add"), std::string::npos);
  auto range = memory.add("cache", range_of(2_MiB));
  for (const auto& call : {std::function<void()>([&] {
                             memory.sleep({"cache", "weights"});
                           }),
                           std::function<void()>([&] { memory.wake("weights"); })}) {
    const Failure refused = refusal_of(call);
    EXPECT_EQ(refused.kind, ErrorKind::invalid_use);
    EXPECT_NE(refused.message().find("tag = 'weights'"), std::string::npos) << refused.message();
    EXPECT_NE(refused.way_out.find("cache"), std::string::npos) << refused.message();
  }
  EXPECT_FALSE(range.asleep());
  EXPECT_THROW(static_cast<void>(memory.state("weights")), InvalidUse);
  EXPECT_THROW(static_cast<void>(memory.add("", range_of(2_MiB))), InvalidUse);
  auto other = range_of(2_MiB);
  auto policy = SleepPolicy{.content = static_cast<SleepingContent>(9)};
  EXPECT_THROW(static_cast<void>(memory.add("cache", std::move(other), policy)), InvalidUse);
  EXPECT_EQ(other.size(), 2_MiB) << "it is still the caller's";
  EXPECT_NO_THROW(static_cast<void>(memory.add("cache", std::move(other), {})));
}

TEST_F(SleepableMemoryTest, OptionsThatMakeNoSenseAreRefused) {
  const auto make = [&](const SleepableMemoryOptions& options) {
    static_cast<void>(SleepableMemory::create(machine_.driver(), options));
  };
  EXPECT_EQ(refusal_of([&] { make({.copy_threads = 0}); }).kind, ErrorKind::invalid_use);
  EXPECT_EQ(refusal_of([&] { make({.copy_threads = 65}); }).kind, ErrorKind::invalid_use);
  EXPECT_EQ(refusal_of([&] { make({.staging_bytes = 32'767, .copy_threads = 4}); }).kind, ErrorKind::invalid_use);
  EXPECT_EQ(refusal_of([&] { make({.device_wait = -1ms}); }).kind, ErrorKind::invalid_use);
  EXPECT_NO_THROW(make({.staging_bytes = 32'768, .copy_threads = 4, .device_wait = 0ms}));
}

TEST_F(SleepableMemoryTest, C48_APinnedRangeIsRefusedUnlessForced) {
  auto memory = sleepable();
  auto one = memory.add("group", range_of(2_MiB));
  auto other = memory.add("group", range_of(2_MiB));
  const Bytes content = pattern(2_MiB, 9);
  copy_to_device(other.range(), 0, content);
  auto pin = other.range().pin("published as 'weights'");
  const Failure refused = refusal_of([&] { memory.sleep("group"); });
  EXPECT_EQ(refused.kind, ErrorKind::invalid_use);
  EXPECT_NE(refused.message().find("published as 'weights'"), std::string::npos) << refused.message();
  EXPECT_EQ(memory.state("group"), GroupState::awake) << "none of them sleeps";
  EXPECT_EQ(memory.sleep("group", {.despite_pins = true}).bytes_given_back, 4_MiB);
  memory.wake("group");
  EXPECT_TRUE(holds(other.range(), content));
  pin = {};
  EXPECT_EQ(memory.sleep("group").ranges, 2U);
}

TEST_F(SleepableMemoryTest, SharedMemoryIsRefusedAndAliasesInOneGroupStayAliases) {
  auto memory = sleepable();
  auto original = range_of(4_MiB);
  auto alias = MappedRange::create(machine_.driver(), {.capacity = 16_MiB});
  alias.append(original.memory_at(2_MiB));
  alias.append(original.memory_at(2_MiB));
  const Bytes content = pattern(4_MiB, 5);
  copy_to_device(original, 0, content);
  auto share = original.memory_at(2_MiB);
  auto first = memory.add("group", std::move(original));
  auto second = memory.add("group", std::move(alias), {.content = SleepingContent::discarded});
  const Failure refused = refusal_of([&] { memory.sleep("group"); });
  EXPECT_EQ(refused.kind, ErrorKind::invalid_use);
  EXPECT_NE(refused.message().find("1 more share,"), std::string::npos) << refused.message();
  share = {};
  const SleepReport slept = memory.sleep("group");
  EXPECT_EQ(slept.bytes_given_back, 4_MiB);
  EXPECT_EQ(slept.bytes_saved, 4_MiB);
  const WakeReport woke = memory.wake("group");
  EXPECT_EQ(woke.bytes_mapped, 4_MiB);
  EXPECT_TRUE(woke.lost.empty()) << "the other range kept it";
  EXPECT_TRUE(holds(first.range(), content));
  const Bytes written = pattern(2_MiB, 6);
  copy_to_device(second.range(), 2_MiB, written);
  EXPECT_TRUE(holds(first.range(), written, 2_MiB));
  EXPECT_TRUE(holds(second.range(), written, 0));
}

TEST_F(SleepableMemoryTest, GroupsThatShareMemoryWakeWithMemoryOfTheirOwn) {
  auto memory = sleepable();
  auto original = range_of(2_MiB);
  const Bytes content = pattern(2_MiB, 5);
  copy_to_device(original, 0, content);
  auto alias = MappedRange::create(machine_.driver(), {.capacity = 16_MiB});
  alias.append(original.memory_at(0));
  auto first = memory.add("one", std::move(original));
  auto second = memory.add("two", std::move(alias));
  EXPECT_EQ(refusal_of([&] { memory.sleep({"one", "two"}); }).kind, ErrorKind::invalid_use);
  EXPECT_EQ(memory.sleep("one", {.despite_pins = true}).bytes_held_by_others, 2_MiB);
  memory.wake("one");
  EXPECT_EQ(memory.sleep({"one", "two"}).ranges, 2U) << "they share nothing any more";
  std::jthread other([&] { memory.wake("one"); });
  memory.wake("two");
  other.join();
  EXPECT_TRUE(holds(first.range(), content));
  EXPECT_TRUE(holds(second.range(), content));
}

TEST_F(SleepableMemoryTest, WhatTwoGroupsShareIsCountedOnce) {
  auto memory = sleepable();
  auto original = range_of(4_MiB);
  auto alias = MappedRange::create(machine_.driver(), {.capacity = 16_MiB});
  alias.append(original.memory_at(0));
  alias.append(original.memory_at(2_MiB));
  auto share = original.memory_at(2_MiB);
  auto first = memory.add("one", std::move(original));
  auto second = memory.add("two", std::move(alias));
  EXPECT_EQ(memory.holdings().awake_bytes, 4_MiB);
  const SleepReport slept = memory.sleep({"one", "two"}, {.despite_pins = true});
  EXPECT_EQ(slept.bytes_given_back, 2_MiB);
  EXPECT_EQ(slept.bytes_held_by_others, 2_MiB) << "by the share that is left";
  share = {};
  EXPECT_EQ(machine_.alive().handles, 0U);
  memory.wake({"one", "two"});
  EXPECT_EQ(memory.holdings().awake_bytes, 8_MiB) << "each has memory of its own now";
  EXPECT_EQ(memory.sleep({"one", "two"}).bytes_given_back, 8_MiB);
}

TEST_F(SleepableMemoryTest, AHookCannotPutTheRangeThatGrowsToSleep) {
  PhysicalSourceOptions few;
  few.budgets = {{Location::device(DeviceOrdinal(0)), 8_MiB}};
  MappedRangeOptions options;
  options.source = PhysicalSource::create(machine_.driver(), few);
  auto memory = sleepable();
  auto growing = memory.add("growing", range_of(4_MiB, options));
  auto beside = memory.add("growing", range_of(2_MiB, options));
  auto other = memory.add("other", range_of(2_MiB, options));
  const Bytes content = pattern(4_MiB, 3);
  copy_to_device(growing.range(), 0, content);
  std::vector<Failure> refused;
  bool helps = false;
  const auto hook = options.source->add_reclaim_hook([&](const ReclaimRequest&) -> std::size_t {
    const std::vector<std::string> own{"growing"};
    if (const auto slept = memory.try_sleep(own); !slept) refused.push_back(slept.failure());
    return helps ? memory.sleep("other").bytes_given_back : 0;
  });
  EXPECT_FALSE(growing.range().try_append(2_MiB));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].kind, ErrorKind::invalid_use);
  EXPECT_NE(refused[0].rule.find("It is being changed"), std::string::npos) << refused[0].message();
  EXPECT_EQ(memory.state("growing"), GroupState::awake) << "the other range of the group, too";
  helps = true;
  EXPECT_TRUE(growing.range().try_append(2_MiB));
  EXPECT_TRUE(holds(growing.range(), content));
  for (const Failure& each : clean_up_.failures) ADD_FAILURE() << each.message();
}

TEST_F(SleepableMemoryTest, ACallWithinACallForTheSameGroupIsRefusedAtOnce) {
  PhysicalSourceOptions few;
  few.budgets = {{Location::device(DeviceOrdinal(0)), 4_MiB}};
  MappedRangeOptions options;
  options.source = PhysicalSource::create(machine_.driver(), few);
  auto memory = sleepable({.device_wait = 100ms});
  auto range = memory.add("group", range_of(4_MiB, options));
  memory.sleep("group");
  auto held = options.source->acquire({}, 2_MiB);
  std::vector<ErrorKind> refused;
  const auto hook = options.source->add_reclaim_hook([&](const ReclaimRequest&) -> std::size_t {
    const std::vector<std::string> own{"group"};
    if (const auto slept = memory.try_sleep(own); !slept) refused.push_back(slept.failure().kind);
    if (const auto woke = memory.try_wake(own); !woke) refused.push_back(woke.failure().kind);
    held = {};
    return 2_MiB;
  });
  EXPECT_EQ(memory.wake("group").ranges, 1U);
  EXPECT_EQ(refused, (std::vector{ErrorKind::invalid_use, ErrorKind::invalid_use}));
}

TEST_F(SleepableMemoryTest, ARangeThatItsUserClosedIsNoMemberAnyMore) {
  auto memory = sleepable();
  auto closed = memory.add("group", range_of(2_MiB));
  auto range = memory.add("group", range_of(2_MiB));
  closed.range().close();
  EXPECT_EQ(memory.sleep("group").ranges, 1U);
  EXPECT_EQ(memory.holdings().asleep_bytes, 2_MiB);
  EXPECT_EQ(memory.wake("group").ranges, 1U);
  EXPECT_EQ(closed.range().size() + closed.range().capacity() + closed.range().address().value, 0U);
  EXPECT_THROW(closed.range().append(1), InvalidUse);
}

TEST_F(SleepableMemoryTest, WaitsMayBeAsLongAsTheyCanAndNotNegative) {
  auto memory = sleepable({.device_wait = std::chrono::milliseconds::max()});
  auto range = memory.add("group", range_of(2_MiB));
  EXPECT_EQ(memory.sleep("group").ranges, 1U);
  EXPECT_EQ(memory.wake("group").ranges, 1U);
  EXPECT_EQ(refusal_of([&] { memory.sleep("group", {.device_wait = -1ms}); }).kind, ErrorKind::invalid_use);
  EXPECT_EQ(memory.sleep("group", {.device_wait = std::chrono::milliseconds::max()}).ranges, 1U);
}

TEST_F(SleepableMemoryTest, C06_WakingHappensAsAWholeOrNotAtAllAndMayBeTriedAgain) {
  auto memory = sleepable();
  auto one = memory.add("group", range_of(40_MiB));
  auto other = memory.add("group", range_of(40_MiB), {.content = SleepingContent::file});
  const Bytes content = pattern(40_MiB, 2);
  copy_to_device(one.range(), 0, content);
  copy_to_device(other.range(), 0, content);
  memory.sleep("group");
  const Alive asleep = machine_.alive();
  {
    MappedRangeOptions large;
    large.capacity = 256_MiB;
    auto in_the_way = MappedRange::create(machine_.driver(), large);
    in_the_way.append(200_MiB);
    EXPECT_EQ(refusal_of([&] { memory.wake("group"); }).kind, ErrorKind::out_of_device_memory);
    EXPECT_EQ(memory.state("group"), GroupState::asleep);
  }
  EXPECT_EQ(machine_.alive(), asleep);
  EXPECT_EQ(memory.wake("group").bytes_restored, 80_MiB);
  EXPECT_TRUE(holds(one.range(), content));
  EXPECT_TRUE(holds(other.range(), content));
}

TEST_F(SleepableMemoryTest, C06_WhereTheFifthOfEightChunksIsMissingNothingIsMappedAndTheContentIsKept) {
  const Bytes content = pattern(16_MiB, 3);
  for (const SleepingContent kind : {SleepingContent::pinned, SleepingContent::pageable, SleepingContent::file}) {
    auto memory = sleepable();
    auto range = memory.add("group", range_of(16_MiB), {.content = kind});
    ASSERT_EQ(range.range().chunks().size(), 8U);
    copy_to_device(range.range(), 0, content);
    memory.sleep("group");
    const Alive asleep = machine_.alive();
    machine_.fail(EntryPoint::cuMemCreate, 5, abi::CUDA_ERROR_OUT_OF_MEMORY, true);
    const Failure refused = refusal_of([&] { memory.wake("group"); });
    machine_.faults().clear();
    EXPECT_EQ(refused.kind, ErrorKind::out_of_device_memory) << refused.message();
    EXPECT_EQ(machine_.alive(), asleep);
    EXPECT_EQ(memory.state("group"), GroupState::asleep);
    EXPECT_EQ(memory.holdings().asleep_bytes, 16_MiB);
    EXPECT_EQ(memory.wake("group").bytes_restored, 16_MiB);
    EXPECT_TRUE(holds(range.range(), content)) << to_string(kind);
  }
}

// How much pinned memory there is at a time.
class PinnedWatch final : public driver::Decorator<PinnedWatch> {
 public:
  using Decorator::Decorator;

  abi::CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) override {
    const abi::CUresult result = next().cuMemHostAlloc(pointer, bytes, flags);
    const std::lock_guard lock(mutex_);
    if (result == abi::CUDA_SUCCESS) live_ += sizes_[*pointer] = bytes;
    most_ = std::max(most_, live_);
    return result;
  }
  abi::CUresult cuMemFreeHost(void* pointer) override {
    {
      const std::lock_guard lock(mutex_);
      live_ -= sizes_[pointer];
    }
    return next().cuMemFreeHost(pointer);
  }

  [[nodiscard]] std::size_t live() const noexcept { return live_; }
  [[nodiscard]] std::size_t most() const noexcept { return most_; }
  void forget_most() noexcept { most_ = live_; }

 private:
  std::mutex mutex_;
  std::map<void*, std::size_t> sizes_;
  std::size_t live_ = 0;
  std::size_t most_ = 0;
};

TEST_F(SleepableMemoryTest, C10_ContentIsCopiedThroughASmallPinnedRing) {
  const auto pinned = std::make_shared<PinnedWatch>(machine_.driver().shared_interface());
  const Driver driver = Driver::wrap(pinned);
  for (const SleepingContent kind : {SleepingContent::pageable, SleepingContent::file, SleepingContent::pinned}) {
    auto memory = SleepableMemory::create(driver, {.staging_bytes = 1_MiB, .copy_threads = 4});
    auto mapped = MappedRange::create(driver, {.capacity = 64_MiB});
    mapped.append(32_MiB);
    const Bytes content = pattern(32_MiB, 29);
    copy_to_device(mapped, 0, content);
    auto range = memory.add("group", std::move(mapped), {.content = kind});
    const std::size_t limit = kind == SleepingContent::pinned ? 32_MiB : 1_MiB;
    for (const bool falls_asleep : {true, false}) {
      pinned->forget_most();
      falls_asleep ? static_cast<void>(memory.sleep("group")) : static_cast<void>(memory.wake("group"));
      EXPECT_LE(pinned->most(), limit) << to_string(kind) << (falls_asleep ? ", asleep" : ", awake");
      EXPECT_GE(pinned->most(), kind == SleepingContent::pinned ? 32_MiB : 64_KiB);
      EXPECT_EQ(pinned->live(), kind == SleepingContent::pinned && falls_asleep ? 32_MiB : 0U);
    }
    EXPECT_TRUE(holds(range.range(), content)) << to_string(kind);
  }
}

TEST_F(SleepableMemoryTest, C10_BackupsThatAreDroppedLeaveNothing) {
  const auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    std::size_t pages = 0;
    statm >> pages >> pages;
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  };
  auto memory = sleepable();
  auto range = memory.add("group", range_of(32_MiB));
  copy_to_device(range.range(), 0, pattern(32_MiB, 2));
  const auto round = [&] {
    memory.sleep("group");
    EXPECT_EQ(memory.holdings().pageable_bytes, 32_MiB);
    memory.wake("group");
    EXPECT_EQ(memory.holdings().pageable_bytes, 0U);
  };
  for (int count = 0; count < 3; ++count) round();
  const std::size_t before = resident();
  for (int count = 0; count < 20; ++count) round();
  // Sanitizers keep what was freed for a while; twenty backups would be 640 MiB.
  constexpr std::size_t slack = sanitized ? 320_MiB : 16_MiB;
  EXPECT_LT(resident(), before + slack);
}

TEST_F(SleepableMemoryTest, MemoryKeptForReuseIsGivenBackAsWell) {
  auto source = PhysicalSource::create(machine_.driver(), {.budgets = {}, .recycle_limit = 64_MiB});
  MappedRangeOptions options;
  options.source = source;
  auto memory = sleepable();
  auto range = memory.add("group", range_of(8_MiB, options));
  memory.sleep("group");
  EXPECT_EQ(source->counters().recyclable_bytes, 0U);
  EXPECT_EQ(machine_.alive().handles, 0U);
  EXPECT_NO_THROW(memory.wake("group"));
}

TEST_F(SleepableMemoryTest, C05_PagesThatAnotherGroupGotStayItsOwn) {
  auto source = PhysicalSource::create(machine_.driver(), {.budgets = {}, .recycle_limit = 64_MiB});
  MappedRangeOptions options;
  options.source = source;
  auto memory = sleepable();
  auto first = memory.add("first", range_of(4_MiB, options));
  first.range().truncate(0);  // its pages wait for re-use
  auto second = memory.add("second", range_of(4_MiB, options));
  EXPECT_GT(source->counters().recycled, 0U);
  const Bytes content = pattern(4_MiB, 8);
  copy_to_device(second.range(), 0, content);
  EXPECT_EQ(memory.sleep("first").bytes_given_back, 0U);
  EXPECT_TRUE(holds(second.range(), content));
  memory.sleep("second");
  memory.wake({"first", "second"});
  EXPECT_TRUE(holds(second.range(), content));
}

TEST_F(SleepableMemoryTest, MemoryOfTheHostIsCopiedByWhoMayAccessIt) {
  for (const std::vector<AccessGrant>& grants :
       {std::vector<AccessGrant>{{Location::host(), AccessRights::read_write}},
        std::vector<AccessGrant>{{Location::device(DeviceOrdinal(1)), AccessRights::read}},
        std::vector<AccessGrant>{{Location::host(), AccessRights::none}}}) {
    auto memory = sleepable();
    MappedRangeOptions options;
    options.memory.location = Location::host_numa(0);
    options.grants = grants;
    auto mapped = range_of(4_MiB, options);
    const Bytes content = pattern(4_MiB, 11);
    const AccessGrant all{Location::device(DeviceOrdinal(0)), AccessRights::read_write};
    mapped.grant(std::span(&all, 1));
    copy_to_device(mapped, 0, content);
    mapped.revoke(all.location);
    auto range = memory.add("group", std::move(mapped));
    memory.sleep("group");
    memory.wake("group");
    for (const AccessGrant& each : grants)
      EXPECT_EQ(machine_.rights(range.address(), each.location), each.rights) << to_string(each.location);
    range.range().grant(std::span(&all, 1));
    EXPECT_TRUE(holds(range.range(), content));
    memory.sleep("group");  // and goes while it sleeps
  }
  EXPECT_EQ(machine_.alive(), Alive{});
  for (const Failure& each : clean_up_.failures) ADD_FAILURE() << each.message();
}

TEST_F(SleepableMemoryTest, ObserversHearOfBothAndMayRefuseSleeping) {
  auto memory = sleepable();
  auto range = memory.add("group", range_of(4_MiB));
  std::string heard;
  bool refuse = true;
  const auto observation = range.range().observe(
      {.before_unmap =
           [&](std::size_t offset, std::size_t bytes) {
             if (refuse) throw std::runtime_error("in use");
             heard += fmt::format("-{}+{} ", offset >> 20, bytes >> 20);
           },
       .after_map = [&](std::size_t offset,
                        std::size_t bytes) { heard += fmt::format("+{}+{} ", offset >> 20, bytes >> 20); }});
  EXPECT_THROW(memory.sleep("group"), std::runtime_error);
  EXPECT_EQ(memory.state("group"), GroupState::awake);
  EXPECT_EQ(memory.holdings().pageable_bytes, 0U);
  refuse = false;
  heard.clear();
  memory.sleep("group");
  memory.wake("group");
  EXPECT_EQ(heard, "-0+4 +0+2 +2+2 ");
}

// While one thread is held up in an observer of a group, others use, sleep and wake the other groups, and who wants the
// same group waits no longer than it was told.
TEST_F(SleepableMemoryTest, C50_WhoIsHeldUpInAnObserverHoldsNoOtherGroupUp) {
  auto memory = sleepable({.device_wait = 5s});
  auto held = memory.add("held", range_of(2_MiB));
  auto other = memory.add("other", range_of(2_MiB));
  const Bytes content = pattern(2_MiB, 23);
  copy_to_device(other.range(), 0, content);
  std::atomic<bool> entered = false;
  std::atomic<bool> goes_on = false;
  const auto observation = held.range().observe({.before_unmap =
                                                     [&](std::size_t, std::size_t) {
                                                       entered = true;
                                                       entered.notify_all();
                                                       goes_on.wait(false);
                                                     },
                                                 .after_map = {}});
  std::jthread sleeper([&] { memory.sleep("held"); });
  const auto let_go = [&](void*) {
    goes_on = true;
    goes_on.notify_all();
  };
  std::unique_ptr<void, decltype(let_go)> at_the_end(&goes_on, let_go);
  entered.wait(false);
  EXPECT_EQ(memory.sleep("other").ranges, 1U);
  EXPECT_EQ(memory.state("other"), GroupState::asleep);
  EXPECT_EQ(memory.wake("other").ranges, 1U);
  EXPECT_TRUE(holds(other.range(), content));
  EXPECT_EQ(refusal_of([&] { memory.sleep("held", {.device_wait = 5ms}); }).kind, ErrorKind::timed_out);
  EXPECT_THROW(static_cast<void>(held.range()), InvalidUse);
  at_the_end.reset();
  sleeper.join();
  EXPECT_EQ(memory.state("held"), GroupState::asleep);
  EXPECT_EQ(memory.sleep("held", {.device_wait = 5ms}).ranges, 0U) << "nobody else changes it any more";
}

// Whoever needs memory may take it from a group that is idle, within the request that would fail.
TEST_F(SleepableMemoryTest, C50_AHookPutsAnIdleGroupToSleepForWhoNeedsMemory) {
  auto source = PhysicalSource::create(machine_.driver(),
                                       {.budgets = {{Location::device(DeviceOrdinal(0)), 8_MiB}}, .recycle_limit = 0});
  MappedRangeOptions options;
  options.source = source;
  auto memory = sleepable({.device_wait = 5s});
  auto idle = memory.add("idle", range_of(6_MiB, options));
  const Bytes content = pattern(6_MiB, 31);
  copy_to_device(idle.range(), 0, content);
  {
    auto needed = range_of(2_MiB, options);
    EXPECT_FALSE(needed.try_append(6_MiB)) << "nobody gives any";
    std::optional<Failure> refused;
    const auto hook = source->add_reclaim_hook([&](const ReclaimRequest&) {
      const std::vector<std::string> tags{"idle"};
      const auto slept = memory.try_sleep(tags);
      if (!slept) refused = slept.failure();
      return slept ? slept.value().bytes_given_back : 0;
    });
    EXPECT_TRUE(needed.try_append(6_MiB));
    EXPECT_TRUE(idle.asleep());
    EXPECT_FALSE(refused);
    EXPECT_EQ(refusal_of([&] { memory.wake("idle"); }).kind, ErrorKind::out_of_device_memory);
    ASSERT_TRUE(refused) << "the hook is called while the group wakes, and must not wait for that";
    EXPECT_EQ(refused->kind, ErrorKind::invalid_use) << refused->message();
  }
  memory.wake("idle");
  EXPECT_TRUE(holds(idle.range(), content));
}

TEST_F(SleepableMemoryTest, GrowthHolesAndTheEndWhileAsleepAreNoMatter) {
  auto memory = sleepable();
  auto range = memory.add("group", range_of(6_MiB), {.keep_backup = true});
  memory.sleep("group");
  memory.wake("group");
  range.range().unmap(2_MiB, 2_MiB);
  range.range().append(7_MiB);  // more than the backup that is kept has room for
  const Bytes content = pattern(2_MiB, 21);
  copy_to_device(range.range(), 0, content);
  copy_to_device(range.range(), 8_MiB, content);
  memory.sleep("group");
  memory.wake("group");
  EXPECT_EQ(range.range().size(), 13_MiB);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{8_MiB}})
    EXPECT_TRUE(holds(range.range(), content, offset));
  auto empty = memory.add("empty", MappedRange::create(machine_.driver(), {.capacity = 2_MiB}));
  EXPECT_EQ(memory.sleep("empty").ranges, 1U);
  EXPECT_EQ(memory.wake("empty").ranges, 1U);
}

// Each call of the driver that the two make, made to fail once.
TEST_F(SleepableMemoryTest, EveryFailureOfTheDriverLeavesEachRangeAwakeOrAsleepWithItsContent) {
  const Bytes content = pattern(4_MiB, 13);
  for (const SleepingContent kind : {SleepingContent::pinned, SleepingContent::pageable})
    for (const EntryPoint entry :
         {EntryPoint::cuMemHostAlloc, EntryPoint::cuStreamCreate, EntryPoint::cuEventCreate,
          EntryPoint::cuMemcpyDtoHAsync, EntryPoint::cuMemcpyHtoDAsync, EntryPoint::cuEventRecord,
          EntryPoint::cuEventSynchronize, EntryPoint::cuStreamSynchronize, EntryPoint::cuMemUnmap,
          EntryPoint::cuMemRelease, EntryPoint::cuMemCreate, EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess,
          EntryPoint::cuDevicePrimaryCtxRetain, EntryPoint::cuCtxPushCurrent, EntryPoint::cuStreamDestroy,
          EntryPoint::cuMemFreeHost})
      for (std::uint64_t number = 1; number <= 6; ++number) {
        SCOPED_TRACE(fmt::format("{}, call {} of {}", to_string(kind), number, driver::name(entry)));
        auto memory = sleepable();
        auto one = memory.add("group", range_of(4_MiB), {.content = kind});
        auto other = memory.add("group", range_of(4_MiB), {.content = kind});
        copy_to_device(one.range(), 0, content);
        copy_to_device(other.range(), 0, content);
        machine_.fail(entry, number);
        const std::vector<std::string> tags{"group"};
        const auto slept = memory.try_sleep(tags);
        const auto woke = memory.try_wake(tags);
        machine_.faults().clear();
        if (!slept || !woke) {  // it may be tried again, and goes on from there
          ASSERT_TRUE(memory.try_sleep(tags));
          ASSERT_EQ(memory.state("group"), GroupState::asleep);
          ASSERT_TRUE(memory.try_wake(tags));
        }
        ASSERT_TRUE(holds(one.range(), content));
        ASSERT_TRUE(holds(other.range(), content));
      }
  EXPECT_EQ(machine_.alive().mappings, 0U);
}

// Calls that fail when a group is put to sleep.
struct FailingCalls {
  std::string_view name;
  std::vector<std::uint64_t> unmappings;
  bool lasting = false;
  bool mapping_again = false;
};

// The first range has two chunks, the second the same two and one of its own, the third the second of them; putting
// them to sleep fails. `content_` is what the second has at last.
class HalfAsleepTest : public SleepableMemoryTest,
                       public testing::WithParamInterface<std::tuple<SleepingContent, SleepingContent, FailingCalls>> {
 protected:
  void SetUp() override {
    const auto& [first, others, failing] = GetParam();
    auto one = range_of(4_MiB);
    auto two = MappedRange::create(machine_.driver(), {.capacity = 16_MiB, .chunks = ChunkPolicy::fixed(2_MiB)});
    two.append(one.memory_at(0));
    two.append(one.memory_at(2_MiB));
    two.append(2_MiB);
    auto three = MappedRange::create(machine_.driver(), {.capacity = 16_MiB});
    three.append(one.memory_at(2_MiB));
    copy_to_device(two, 0, content_);
    for (MappedRange* each : {&one, &two, &three})
      ranges_.push_back(memory_.add("group", std::move(*each), {.content = ranges_.empty() ? first : others}));
    for (const std::uint64_t call : failing.unmappings)
      machine_.fail(EntryPoint::cuMemUnmap, call, abi::CUDA_ERROR_UNKNOWN, failing.lasting);
    if (failing.mapping_again) machine_.fail(EntryPoint::cuMemMap, 1, abi::CUDA_ERROR_UNKNOWN, true);
    EXPECT_FALSE(memory_.try_sleep(tags_));
    machine_.faults().clear();
  }
  // Writes through a range that is awake, where there is one, to what they share.
  void write_to_what_is_shared() {
    const Bytes written = pattern(2_MiB, 8);
    if (!ranges_[1].asleep())
      copy_to_device(ranges_[1].range(), 2_MiB, written);
    else if (!ranges_[2].asleep())
      copy_to_device(ranges_[2].range(), 0, written);
    else
      return;
    std::copy(written.begin(), written.end(), content_.begin() + 2_MiB);
  }
  void expect_that_all_is_there() {
    const auto memory = [&](std::size_t range, std::size_t offset) {
      return &ranges_[range].range().memory_at(offset).memory();
    };
    EXPECT_EQ(memory(0, 0), memory(1, 0));
    EXPECT_EQ(memory(0, 2_MiB), memory(1, 2_MiB));
    EXPECT_EQ(memory(0, 2_MiB), memory(2, 0));
    const Bytes shared(content_.begin(), content_.begin() + 4_MiB);
    EXPECT_TRUE(!is_kept(0) || holds(ranges_[0].range(), shared));
    EXPECT_TRUE(!is_kept(1) || holds(ranges_[1].range(), content_));
  }
  // Whether a range's content outlives sleep: what is shared does if any of them keeps it.
  static bool is_kept(std::size_t range) {
    const bool first = std::get<0>(GetParam()) != SleepingContent::discarded;
    const bool others = std::get<1>(GetParam()) != SleepingContent::discarded;
    return others || (first && range == 0);
  }

  SleepableMemory memory_ = sleepable();
  Bytes content_ = pattern(6_MiB, 7);
  std::vector<SleepableRange> ranges_;
  const std::vector<std::string> tags_{"group"};
};

TEST_P(HalfAsleepTest, WhatIsSharedStaysSharedAndIsAsItWasLastSeen) {
  write_to_what_is_shared();
  ASSERT_TRUE(memory_.try_wake(tags_));
  expect_that_all_is_there();
}

TEST_P(HalfAsleepTest, TheRestIsPutToSleepLater) {
  write_to_what_is_shared();
  const auto slept = memory_.try_sleep(tags_);
  ASSERT_TRUE(slept) << slept.failure().message();
  const std::size_t kept = std::get<2>(GetParam()).mapping_again ? 2 : 0;  // what could not be mapped again
  EXPECT_EQ(machine_.alive().handles, kept);
  EXPECT_EQ(machine_.alive().mappings, 0U);
  EXPECT_EQ(memory_.holdings().asleep_bytes, 6_MiB - kept * 2_MiB);
  ASSERT_TRUE(memory_.try_wake(tags_));
  EXPECT_EQ(machine_.alive().handles, 3U);
  expect_that_all_is_there();
}

INSTANTIATE_TEST_SUITE_P(
    Policies, HalfAsleepTest,
    testing::Combine(testing::Values(SleepingContent::pinned, SleepingContent::discarded),
                     testing::Values(SleepingContent::pageable, SleepingContent::discarded),
                     testing::Values(FailingCalls{"first", {1}, true}, FailingCalls{"second", {2}, true},
                                     FailingCalls{"second_in_part", {2, 4}},
                                     FailingCalls{"second_mapped_again_in_part", {2, 4}, false, true},
                                     FailingCalls{"third", {3}})),
    [](const auto& param) {
      return fmt::format("{}_{}_{}", to_string(std::get<0>(param.param)), to_string(std::get<1>(param.param)),
                         std::get<2>(param.param).name);
    });

TEST_F(SleepableMemoryTest, OneGroupSleepsWhileAnotherIsUsedAndTwoCallsForOneTakeTurns) {
  auto memory = sleepable();
  auto used = memory.add("used", range_of(2_MiB));
  auto range = memory.add("group", range_of(8_MiB));
  const Bytes content = pattern(8_MiB, 17);
  copy_to_device(range.range(), 0, content);
  std::atomic<bool> done = false;
  const auto turn = [&] {
    for (int round = 0; round < 10; ++round) {
      memory.sleep("group");
      memory.wake("group");
    }
  };
  std::jthread first(turn);
  std::jthread second(turn);
  std::jthread user([&] {
    const CurrentContext context(machine_.driver().device(DeviceOrdinal(0)));
    const Bytes mine = pattern(2_MiB, 19);
    while (!done) {
      copy_to_device(used.range(), 0, mine);
      ASSERT_TRUE(holds(used.range(), mine));
    }
  });
  first.join();
  second.join();
  done = true;
  user.join();
  memory.wake("group");
  EXPECT_TRUE(holds(range.range(), content));
}

}  // namespace
}  // namespace cuvmm
