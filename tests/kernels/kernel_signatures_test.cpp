#include "gpu/kernel_signatures.hpp"

#include <gtest/gtest.h>

namespace cuvmm::gpu {
namespace {

TEST(KernelArguments, FillSurvivesTheLaunch) {
  FillParameters given{0x1000, 20, 30};
  const auto read = read_arguments<FillParameters>(arguments(given).data());
  EXPECT_EQ(read.destination, 0x1000U);
  EXPECT_EQ(read.bytes, 20U);
  EXPECT_EQ(read.pattern, 30U);
}

TEST(KernelArguments, CopySurvivesTheLaunch) {
  CopyParameters given{0x1000, 0x2000, 30};
  const auto read = read_arguments<CopyParameters>(arguments(given).data());
  EXPECT_EQ(read.destination, 0x1000U);
  EXPECT_EQ(read.source, 0x2000U);
  EXPECT_EQ(read.bytes, 30U);
}

TEST(KernelArguments, ChecksumSurvivesTheLaunch) {
  ChecksumParameters given{0x1000, 20, 30, 0x4000};
  const auto read = read_arguments<ChecksumParameters>(arguments(given).data());
  EXPECT_EQ(read.source, 0x1000U);
  EXPECT_EQ(read.bytes, 20U);
  EXPECT_EQ(read.first_word, 30U);
  EXPECT_EQ(read.sum, 0x4000U);
}

TEST(KernelArguments, ScaleAddSurvivesTheLaunch) {
  ScaleAddParameters given{0x1000, 0x2000, 2.5F, 40};
  const auto read = read_arguments<ScaleAddParameters>(arguments(given).data());
  EXPECT_EQ(read.y, 0x1000U);
  EXPECT_EQ(read.x, 0x2000U);
  EXPECT_EQ(read.factor, 2.5F);
  EXPECT_EQ(read.count, 40U);
}

TEST(KernelArguments, SpinSurvivesTheLaunch) {
  SpinParameters given{0x1000, 20};
  const auto read = read_arguments<SpinParameters>(arguments(given).data());
  EXPECT_EQ(read.flag, 0x1000U);
  EXPECT_EQ(read.most_polls, 20U);
}

TEST(LaunchShape, HasWorkForEveryBlockAndABound) {
  EXPECT_EQ(launch_shape(0).blocks, 1U);
  EXPECT_EQ(launch_shape(1000).blocks, 4U);
  EXPECT_EQ(launch_shape(~std::uint64_t{0}).blocks, 4096U);
  EXPECT_EQ(launch_shape(1000).threads_per_block, 256U);
}

}  // namespace
}  // namespace cuvmm::gpu
