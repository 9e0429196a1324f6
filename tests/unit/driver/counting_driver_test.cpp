#include "driver/counting_driver.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "driver/signature.hpp"
#include "fake_driver.hpp"

namespace cuvmm::driver {
namespace {

using test::FakeDriver;

TEST(CountingDriver, CountsPerEntryPointAndPassesAnswersOn) {
  const auto fake = std::make_shared<FakeDriver>();
  fake->answer(EntryPoint::cuMemUnmap, CUDA_ERROR_INVALID_VALUE, "reason");
  CountingDriver driver(fake);
  EXPECT_EQ(driver.cuMemUnmap(1, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.explanation(), "reason");
  EXPECT_EQ(driver.cuMemUnmap(1, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemRelease(1), CUDA_SUCCESS);
  const CallCounts counts = driver.snapshot();
  EXPECT_EQ(counts[EntryPoint::cuMemUnmap], 2u);
  EXPECT_EQ(counts[EntryPoint::cuMemRelease], 1u);
  EXPECT_EQ(counts[EntryPoint::cuMemMap], 0u);
  EXPECT_EQ(counts.total(), 3u);
  EXPECT_EQ(fake->calls.size(), 3u);
}

TEST(CountingDriver, DifferenceOfSnapshotsIsWhatHappenedBetween) {
  CountingDriver driver(std::make_shared<FakeDriver>());
  driver.cuMemRelease(1);
  const CallCounts before = driver.snapshot();
  driver.cuMemRelease(1);
  driver.cuCtxSynchronize();
  const CallCounts between = driver.snapshot() - before;
  const std::vector<std::pair<EntryPoint, std::uint64_t>> expected{{EntryPoint::cuCtxSynchronize, 1},
                                                                   {EntryPoint::cuMemRelease, 1}};
  EXPECT_EQ(between.called(), expected);
}

TEST(CountingDriver, ResetSetsToZero) {
  CountingDriver driver(std::make_shared<FakeDriver>());
  driver.cuMemRelease(1);
  driver.reset();
  EXPECT_EQ(driver.snapshot(), CallCounts());
}

// FakeDriver's log is for one thread; this one remembers nothing.
class Silent final : public Decorator<Silent> {
 public:
  using Decorator::Decorator;
  template <EntryPoint, class... Arguments>
  CUresult around(Arguments...) {
    return CUDA_SUCCESS;
  }
};

TEST(CountingDriver, LosesNoCallOfAnyThread) {
  CountingDriver driver(std::make_shared<Silent>(nullptr));
  const auto call_often = [&] {
    for (int i = 0; i < 10000; ++i) driver.cuMemRelease(1);
  };
  std::thread other(call_often);
  call_often();
  other.join();
  EXPECT_EQ(driver.snapshot()[EntryPoint::cuMemRelease], 20000u);
}

TEST(CountingDriver, ForwardsEveryEntryPointToItself) {
  const auto fake = std::make_shared<FakeDriver>();
  CountingDriver driver(fake);
#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments)                                        \
  std::apply([&](auto... zeros) { static_cast<void>((driver.*Traits<EntryPoint::name>::method)(zeros...)); }, \
             ParametersOf<EntryPoint::name>());
#include "driver/entry_points.def"
  ASSERT_EQ(fake->calls.size(), entry_point_count);
  for (std::size_t index = 0; index < entry_point_count; ++index)
    EXPECT_EQ(fake->calls[index], entry_points[index].entry_point);
}

TEST(CountingDriver, KnowsWhatTheDriverBeneathKnows) {
  const auto fake = std::make_shared<FakeDriver>();
  fake->missing = {EntryPoint::cuMulticastCreate};
  const CountingDriver driver(fake);
  EXPECT_EQ(driver.description(), "fake driver");
  EXPECT_FALSE(driver.emulated());
  EXPECT_FALSE(driver.has(EntryPoint::cuMulticastCreate));
  EXPECT_TRUE(driver.has(EntryPoint::cuMemMap));
}

}  // namespace
}  // namespace cuvmm::driver
