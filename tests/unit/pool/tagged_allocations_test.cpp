#include "cuvmm/pool/tagged_allocations.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool_machine.hpp"

namespace cuvmm {
namespace {

using namespace test;

class TaggedAllocationsTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(handler_.take().empty()); }

  unsigned word(DeviceAddress address) {
    unsigned seen = 0;
    machine_.read(address, &seen, stream_);
    machine_.finish(stream_);
    return seen;
  }

  SafeRecordingHandler handler_;
  PoolMachine machine_;
  CUstream stream_ = machine_.stream();
  Pool pool_ = Pool::create(machine_.driver());
  TaggedAllocations tagged_ = TaggedAllocations::create(pool_);
};

TEST_F(TaggedAllocationsTest, AGroupSleepsAndWakesAtItsAddressesWithItsContent) {
  const std::size_t before = machine_.free_memory();
  const DeviceAddress weights = tagged_.allocate("weights", 40_MiB, stream_);
  const DeviceAddress cache = tagged_.allocate("cache", 64_MiB, stream_, {.content = SleepingContent::discarded});
  machine_.fill(weights + 39_MiB, 4096, 6, stream_);
  EXPECT_EQ(tagged_.live_bytes("weights"), 40_MiB);
  EXPECT_EQ(tagged_.sleep("weights").bytes_given_back, 40_MiB);
  EXPECT_EQ(tagged_.state("weights"), GroupState::asleep);
  EXPECT_EQ(tagged_.state("cache"), GroupState::awake);
  EXPECT_EQ(machine_.free_memory(), before - 64_MiB);
  EXPECT_THROW(tagged_.used_on(weights, stream_), InvalidUse);
  tagged_.sleep("cache");
  EXPECT_EQ(machine_.free_memory(), before);
  EXPECT_EQ(tagged_.wake("weights").bytes_restored, 40_MiB);
  EXPECT_EQ(word(weights + 39_MiB), 6u);
  EXPECT_EQ(tagged_.wake("cache").lost.size(), 1u);
  EXPECT_EQ(tagged_.describe(cache + 5)->tag, "cache");
  tagged_.free(weights);
  EXPECT_THROW(tagged_.free(weights), InvalidUse);
  EXPECT_THROW(tagged_.free(cache + 5), InvalidUse);
  EXPECT_FALSE(tagged_.describe(weights));
  tagged_.free(cache);
  EXPECT_EQ(tagged_.tags(), std::vector<std::string>{});
}

TEST_F(TaggedAllocationsTest, C05_MemoryThatCameBackUnderAnotherTagStaysAwakeWithThatOne) {
  const DeviceAddress first = tagged_.allocate("first", 64_MiB, stream_);
  const DeviceAddress kept = tagged_.allocate("first", 2_MiB, stream_);
  machine_.finish(stream_);
  tagged_.free(first);
  const DeviceAddress second = tagged_.allocate("second", 64_MiB, stream_);
  machine_.fill(second, 4096, 8, stream_);
  EXPECT_EQ(tagged_.sleep("first").bytes_given_back, 2_MiB) << "only what lives under that tag";
  EXPECT_EQ(tagged_.state("second"), GroupState::awake);
  EXPECT_EQ(word(second), 8u);
  machine_.fill(second + 63_MiB, 4096, 9, stream_);
  tagged_.wake("first");
  EXPECT_EQ(word(second + 63_MiB), 9u);
  tagged_.free(kept);
  tagged_.free(second);
}

TEST_F(TaggedAllocationsTest, WhatIsFreeInThePoolIsGivenUpForThem) {
  const std::size_t most = machine_.free_memory() / 2_MiB * 2_MiB;
  pool_.free(pool_.allocate(most - 64_MiB, stream_), stream_);
  machine_.finish(stream_);
  const DeviceAddress large = tagged_.allocate("weights", 1_GiB, stream_);
  EXPECT_LT(pool_.statistics().reserved_bytes, most - 64_MiB);
  tagged_.free(large);
}

TEST_F(TaggedAllocationsTest, WorkIsWaitedForBeforeTheMemoryGoes) {
  const DeviceAddress used = tagged_.allocate("weights", 4_MiB, stream_);
  const CUstream other = machine_.stream();
  tagged_.used_on(used, other);
  std::uint32_t* const held = machine_.hold(other);
  machine_.fill(used, 4_MiB, 1, other);
  tagged_.free(used);  // the strict machine refuses to unmap it now
  machine_.let_go(held, other);
}

TEST_F(TaggedAllocationsTest, TellsWhatLivesUnderATagAndHasLived) {
  const DeviceAddress one = tagged_.allocate("weights", 5_MiB, stream_);
  const DeviceAddress two = tagged_.allocate("weights", 2_MiB, stream_);
  const DeviceAddress other = tagged_.allocate("cache", 1, stream_);
  TagStatistics expected{.live_bytes = 7_MiB,
                         .live_allocations = 2,
                         .rounded_bytes = 8_MiB,
                         .peak_live_bytes = 7_MiB,
                         .peak_rounded_bytes = 8_MiB};
  EXPECT_EQ(tagged_.statistics("weights"), expected);
  tagged_.sleep("weights");
  expected.asleep_bytes = 8_MiB;
  EXPECT_EQ(tagged_.statistics("weights"), expected);
  tagged_.wake("weights");
  tagged_.free(one);
  tagged_.free(two);
  EXPECT_EQ(tagged_.statistics("weights"), (TagStatistics{.peak_live_bytes = 7_MiB, .peak_rounded_bytes = 8_MiB}));
  EXPECT_EQ(tagged_.statistics("cache").rounded_bytes, 2_MiB);
  EXPECT_EQ(tagged_.statistics("never"), TagStatistics{});
  tagged_.free(other);
}

TEST_F(TaggedAllocationsTest, ABudgetIsOfOneTagAndCountsWhatSleeps) {
  tagged_.set_budget("cache", 8_MiB);
  const DeviceAddress first = tagged_.allocate("cache", 5_MiB, stream_);  // takes 6 MiB
  tagged_.sleep("cache");
  const std::size_t before = machine_.free_memory();
  try {
    (void)tagged_.allocate("cache", 3_MiB, stream_);
    ADD_FAILURE() << "4 MiB are beyond the budget";
  } catch (const OutOfDeviceMemory& error) {
    EXPECT_EQ(error.failure().asked_bytes, 3_MiB);
    EXPECT_EQ(error.failure().rounded_bytes, 4_MiB);
    EXPECT_EQ(error.failure().live_bytes, 6_MiB);
  }
  EXPECT_EQ(machine_.free_memory(), before);
  EXPECT_EQ(tagged_.statistics("cache").rounded_bytes, 6_MiB) << "what was refused is not charged";
  const DeviceAddress second = tagged_.allocate("cache", 2_MiB, stream_);
  const DeviceAddress elsewhere = tagged_.allocate("weights", 64_MiB, stream_);
  tagged_.set_budget("cache", 2_MiB);
  EXPECT_EQ(tagged_.wake("cache").ranges, 1u) << "waking is never refused by a budget";
  tagged_.free(first);
  EXPECT_THROW((void)tagged_.allocate("cache", 1, stream_), OutOfDeviceMemory);
  tagged_.set_budget("cache", 0);
  tagged_.free(tagged_.allocate("cache", 64_MiB, stream_));
  EXPECT_THROW(tagged_.set_budget("", 1), InvalidUse);
  tagged_.free(second);
  tagged_.free(elsewhere);
}

TEST_F(TaggedAllocationsTest, WhatTheMachineRefusesIsNotChargedToTheTag) {
  tagged_.set_budget("cache", 1_GiB);
  machine_.faults().inject({.entry_point = EntryPoint::cuMemMap});
  EXPECT_THROW((void)tagged_.allocate("cache", 1_GiB, stream_), Error);
  EXPECT_EQ(tagged_.statistics("cache"), TagStatistics{.budget = 1_GiB});
  tagged_.free(tagged_.allocate("cache", 1_GiB, stream_));
}

TEST_F(TaggedAllocationsTest, AForkedChildIsRefused) {
  const DeviceAddress address = tagged_.allocate("weights", 1, stream_);
  const pid_t child = ::fork();
  if (child == 0) {
    int refused = 0;
    try {
      tagged_.sleep("weights");
    } catch (const InvalidUse& error) {
      if (error.failure().rule_ids == "NOT-AFTER-FORK") ++refused;
    }
    try {
      tagged_.free(address);
    } catch (const InvalidUse& error) {
      if (error.failure().call == "TaggedAllocations::free") ++refused;
    }
    ::_exit(refused);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(tagged_.sleep("weights").bytes_given_back, 2_MiB);
  tagged_.free(address);
}

TEST_F(TaggedAllocationsTest, RefusalsNameTheCallThatTheProgramMade) {
  const auto refused = [](auto&& step) {
    try {
      step();
    } catch (const Error& error) {
      return error.failure();
    }
    return Failure{};
  };
  EXPECT_EQ(refused([&] { tagged_.sleep("nobody"); }).call, "TaggedAllocations::sleep");
  EXPECT_EQ(refused([&] { tagged_.wake("nobody"); }).call, "TaggedAllocations::wake");
  EXPECT_EQ(refused([&] { (void)tagged_.state("nobody"); }).call, "TaggedAllocations::state");
  const DeviceAddress address = tagged_.allocate("weights", 1, stream_);
  tagged_.sleep("weights");
  EXPECT_EQ(refused([&] { tagged_.used_on(address, stream_); }).call, "TaggedAllocations::used_on");
  tagged_.wake("weights");
  tagged_.used_on(address, stream_);
  tagged_.free(address);
  const Failure large = refused([&] { (void)tagged_.allocate("weights", SIZE_MAX, stream_); });
  EXPECT_EQ(large.kind, ErrorKind::out_of_device_memory);
  EXPECT_EQ(large.call, "TaggedAllocations::allocate");
  EXPECT_EQ(large.way_out, "Ask for less");
  const Pool moved = std::move(pool_);
  EXPECT_EQ(refused([&] { (void)TaggedAllocations::create(pool_); }).call, "TaggedAllocations::create");
}

TEST_F(TaggedAllocationsTest, ATagIsShownOnOneLine) {
  tagged_.set_budget("a\nb\x1b\"", 2_MiB);
  try {
    (void)tagged_.allocate("a\nb\x1b\"", 4_MiB, stream_);
    ADD_FAILURE() << "beyond the budget";
  } catch (const OutOfDeviceMemory& error) {
    EXPECT_NE(error.failure().arguments.find("a\\x0ab\\x1b"), std::string::npos) << error.what();
    EXPECT_EQ(error.failure().arguments.find('\n'), std::string::npos);
  }
}

TEST_F(TaggedAllocationsTest, RefusesWhatCannotBe) {
  EXPECT_THROW((void)tagged_.allocate("", 1, stream_), InvalidUse);
  EXPECT_THROW((void)tagged_.allocate("weights", 0, stream_), InvalidUse);
  EXPECT_THROW((void)tagged_.allocate("weights", 1, stream_, {}, DeviceOrdinal{3}), InvalidUse);
  EXPECT_THROW((void)tagged_.state("weights"), InvalidUse);
  tagged_.free(tagged_.allocate("weights", 1, stream_));
}

}  // namespace
}  // namespace cuvmm
