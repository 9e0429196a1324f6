#include "gpu/kernel_signatures.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace cuvmm::gpu {
namespace {

template <std::size_t count>
bool are(const std::array<void*, count>& pointers, std::initializer_list<const void*> expected) {
  return std::equal(pointers.begin(), pointers.end(), expected.begin(), expected.end());
}

TEST(KernelArguments, PointAtTheFieldsInTheKernelsOrder) {
  FillParameters fill{};
  EXPECT_TRUE(are(arguments(fill), {&fill.destination, &fill.bytes, &fill.pattern}));
  CopyParameters copy{};
  EXPECT_TRUE(are(arguments(copy), {&copy.destination, &copy.source, &copy.bytes}));
  ChecksumParameters checksum{};
  EXPECT_TRUE(are(arguments(checksum), {&checksum.source, &checksum.bytes, &checksum.first_word, &checksum.sum}));
  ScaleAddParameters scale_add{};
  EXPECT_TRUE(are(arguments(scale_add), {&scale_add.y, &scale_add.x, &scale_add.factor, &scale_add.count}));
  SpinParameters spin{};
  EXPECT_TRUE(are(arguments(spin), {&spin.flag, &spin.most_polls}));
  AliasParameters alias{};
  EXPECT_TRUE(
      are(arguments(alias), {&alias.written, &alias.source, &alias.read, &alias.bytes, &alias.first_word, &alias.sum}));
  ReadParameters read{};
  EXPECT_TRUE(
      are(arguments(read), {&read.source, &read.bytes, &read.tile_bytes, &read.tiles, &read.state, &read.progress}));
}

TEST(LaunchShape, HasWorkForEveryBlockAndABound) {
  EXPECT_EQ(launch_shape(0).blocks, 1U);
  EXPECT_EQ(launch_shape(1000).blocks, 4U);
  EXPECT_EQ(launch_shape(~std::uint64_t{0}).blocks, 4096U);
  EXPECT_EQ(launch_shape(1000).threads_per_block, 256U);
}

}  // namespace
}  // namespace cuvmm::gpu
