#include "cuvmm/granularity.hpp"

#include <gtest/gtest.h>

#include "cuvmm/error.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm {
namespace {

using namespace literals;

TEST(CombinedGranularity, IsTheLeastThatSuitsAll) {
  const std::size_t units[] = {2_MiB, 2_MiB, 512_MiB};
  EXPECT_EQ(combined_granularity(units), 512_MiB);
  const std::size_t odd[] = {64_KiB, 96_KiB};
  EXPECT_EQ(combined_granularity(odd), 192_KiB);
  const std::size_t one[] = {1};
  EXPECT_EQ(combined_granularity(one), 1u);
  EXPECT_THROW(static_cast<void>(combined_granularity({})), InvalidUse);
  const std::size_t zero[] = {2_MiB, 0};
  EXPECT_THROW(static_cast<void>(combined_granularity(zero)), InvalidUse);
  const std::size_t large[] = {SIZE_MAX, SIZE_MAX - 1};
  EXPECT_THROW(static_cast<void>(combined_granularity(large)), InvalidUse);
}

TEST(CombinedGranularity, C13_SizesOffsetsAndAlignmentSuitAllUnits) {
  const std::size_t units[] = {2_MiB, 2_MiB, 512_MiB};
  EXPECT_EQ(fitted(0, units), (GranularFit{512_MiB, 512_MiB, 512_MiB}));
  EXPECT_EQ(fitted(512_MiB, units).bytes, 512_MiB);
  EXPECT_EQ(fitted(512_MiB + 1, units).bytes, 1_GiB);
  const std::size_t odd[] = {64_KiB, 96_KiB};
  EXPECT_EQ(fitted(1, odd), (GranularFit{192_KiB, 192_KiB, 0})) << "no alignment that the driver takes";
  EXPECT_THROW(static_cast<void>(fitted(SIZE_MAX, units)), InvalidUse);
}

}  // namespace
}  // namespace cuvmm
