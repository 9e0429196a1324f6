#include "cuvmm/units.hpp"

#include <gtest/gtest.h>

#include "cuvmm/error.hpp"

namespace cuvmm {
namespace {

static_assert(1'000_KiB == 1024000 && 0_GiB == 0 && 16777215_TiB == SIZE_MAX - (1_TiB - 1));
static_assert(2_KiB == 2048 && 1_MiB == 1048576 && 3_GiB == 3221225472 && 1_TiB == 1024_GiB);
static_assert(DeviceOrdinal{1} < DeviceOrdinal{2} && DeviceOrdinal{} == DeviceOrdinal{0});
static_assert(DeviceAddress{4096} + 4096 == DeviceAddress{8192});

TEST(Units, PowersOfTwo) {
  EXPECT_TRUE(is_power_of_two(1));
  EXPECT_TRUE(is_power_of_two(2_MiB));
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_FALSE(is_power_of_two(6_MiB));
}

TEST(Units, AlignUpRoundsToTheNextMultiple) {
  EXPECT_EQ(align_up(0, 2_MiB), 0u);
  EXPECT_EQ(align_up(1, 2_MiB), 2_MiB);
  EXPECT_EQ(align_up(2_MiB, 2_MiB), 2_MiB);
  EXPECT_EQ(align_up(2_MiB + 1, 2_MiB), 4_MiB);
  EXPECT_EQ(align_up(7, 6), 12u);
}

TEST(Units, AlignUpRefusesWhatOverflows) {
  EXPECT_THROW(static_cast<void>(align_up(SIZE_MAX - 1, 2_MiB)), InvalidUse);
  EXPECT_EQ(align_up(SIZE_MAX - 2_MiB, 2_MiB), SIZE_MAX - 2_MiB + 1);
}

TEST(Units, AlignUpRefusesAGranularityOfZero) {
  EXPECT_THROW(static_cast<void>(align_up(1, 0)), InvalidUse);
  EXPECT_EQ(align_up(1, 1), 1u);
  EXPECT_EQ(checked_align_up(1, 0), std::nullopt);
}

TEST(Units, FormatBytesIsExactWhereItCanBe) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(2_MiB), "2 MiB");
  EXPECT_EQ(format_bytes(2_MiB + 512_KiB), "2.5 MiB");
  EXPECT_EQ(format_bytes(16_GiB + 256_MiB), "16.25 GiB");
  EXPECT_EQ(format_bytes(64_TiB), "64 TiB");
}

TEST(Units, FormatBytesSaysThatItRounded) {
  EXPECT_EQ(format_bytes(1025), "about 1.00 KiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "about 16.00 EiB");
}

TEST(Units, DeviceAddressIsAPointerToo) {
  EXPECT_EQ(DeviceAddress{0x1000}.as_pointer<char>(), reinterpret_cast<char*>(0x1000));
}

}  // namespace
}  // namespace cuvmm
