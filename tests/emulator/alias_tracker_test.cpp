// Who wrote what at which address, without kernels.
#include "emulator/api/alias_tracker.hpp"

#include <gtest/gtest.h>

namespace cuvmm::emulator::api {
namespace {

class AliasTrackerTest : public testing::Test {
 protected:
  // Bytes of one file, of which no more than its address is used.
  AliasTracker::Access at(std::uint64_t mapping, std::uint64_t offset, std::uint64_t bytes, bool multicast = false) {
    return {multicast, {{mapping + offset, {reinterpret_cast<memory::MappedFile*>(&file_), offset, nullptr, bytes}}}};
  }

  AliasTracker tracker_;

 private:
  int file_ = 0;
};

constexpr std::uint64_t one_mapping = 0x1000'0000, other_mapping = 0x2000'0000;

TEST_F(AliasTrackerTest, ALaunchNeedsAFenceBetweenItsOwnTwoAddresses) {
  const auto launch = tracker_.begin(0);
  tracker_.wrote(launch, at(one_mapping, 100, 8));
  EXPECT_TRUE(tracker_.reads(launch, at(other_mapping, 104, 4)));
  EXPECT_FALSE(tracker_.reads(launch, at(one_mapping, 104, 4))) << "the same address";
  EXPECT_FALSE(tracker_.reads(launch, at(other_mapping, 108, 4))) << "what was not written";
  tracker_.alias_fence(launch);
  EXPECT_FALSE(tracker_.reads(launch, at(other_mapping, 104, 4)));
  tracker_.wrote(launch, at(one_mapping, 104, 4));
  EXPECT_TRUE(tracker_.reads(launch, at(other_mapping, 104, 4))) << "written again";
  EXPECT_FALSE(tracker_.reads(launch, at(other_mapping, 100, 4)));
}

TEST_F(AliasTrackerTest, EitherLaunchsFenceWillDo) {
  for (const bool of_writer : {true, false}) {
    const auto writer = tracker_.begin(0), reader = tracker_.begin(1);
    tracker_.wrote(writer, at(one_mapping, 0, 4, true));
    EXPECT_TRUE(tracker_.reads(reader, at(other_mapping, 0, 4)));
    tracker_.alias_fence(of_writer ? writer : reader);
    EXPECT_FALSE(tracker_.reads(reader, at(other_mapping, 0, 4)));
    tracker_.end(writer);
    tracker_.end(reader);
  }
}

// As in a barrier: the reader's own arrival is one of the writes, whoever wrote last.
TEST_F(AliasTrackerTest, AReaderThatWroteThereNeedsItBehindItsOwnWrite) {
  const auto writer = tracker_.begin(0), reader = tracker_.begin(1);
  tracker_.alias_fence(reader);
  tracker_.wrote(reader, at(one_mapping, 0, 4, true));
  tracker_.wrote(writer, at(one_mapping, 0, 4, true));
  EXPECT_TRUE(tracker_.reads(reader, at(other_mapping, 0, 4)));
  tracker_.alias_fence(reader);
  EXPECT_FALSE(tracker_.reads(reader, at(other_mapping, 0, 4)));
}

TEST_F(AliasTrackerTest, AReadersFenceCountsBehindTheWriteAlone) {
  const auto writer = tracker_.begin(0), reader = tracker_.begin(1);
  tracker_.alias_fence(reader);
  tracker_.wrote(writer, at(one_mapping, 0, 4, true));
  EXPECT_TRUE(tracker_.reads(reader, at(other_mapping, 0, 4)));
  const auto told = at(one_mapping, 0, 4, true);
  tracker_.alias_fence(writer, &told);
  EXPECT_FALSE(tracker_.reads(reader, at(other_mapping, 0, 4))) << "written and fenced at once";
}

TEST_F(AliasTrackerTest, DevicesHaveAddressesOfTheirOwn) {
  const auto writer = tracker_.begin(0), neighbour = tracker_.begin(0), reader = tracker_.begin(1);
  tracker_.wrote(writer, at(one_mapping, 0, 4));
  EXPECT_FALSE(tracker_.reads(reader, at(other_mapping, 0, 4)));
  EXPECT_TRUE(tracker_.reads(reader, at(other_mapping, 0, 4, true))) << "but not of multicast addresses";
  EXPECT_TRUE(tracker_.reads(neighbour, at(other_mapping, 0, 4))) << "nor on one device";
}

TEST_F(AliasTrackerTest, TheEndOfALaunchOrdersWhatItDid) {
  const auto writer = tracker_.begin(0), over = tracker_.begin(0), reader = tracker_.begin(0);
  tracker_.wrote(writer, at(one_mapping, 0, 8));
  tracker_.wrote(over, at(one_mapping, 0, 8));
  tracker_.end(over);
  EXPECT_FALSE(tracker_.reads(reader, at(other_mapping, 0, 8)));
  tracker_.end(writer);
  tracker_.end(writer);  // is no harm
  EXPECT_FALSE(tracker_.reads(reader, at(other_mapping, 0, 8)));
}

}  // namespace
}  // namespace cuvmm::emulator::api
