// The 16-bit types, every value of them, against a reference that knows nothing of bits: the nearest of all values.
#include "cuvmm/gpu/float16.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace cuvmm::gpu {
namespace {

// What a format's bits mean, from its definition.
struct Format {
  int exponent_bits;
  int fraction_bits;

  [[nodiscard]] double value(unsigned magnitude) const {
    const unsigned fraction = magnitude & ((1U << fraction_bits) - 1);
    const int exponent = static_cast<int>(magnitude >> fraction_bits);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction == 0 ? INFINITY : NAN;
    if (exponent == 0) return std::ldexp(fraction, 1 - bias - fraction_bits);
    return std::ldexp((1U << fraction_bits) + fraction, exponent - bias - fraction_bits);
  }
  [[nodiscard]] unsigned infinity() const { return ((1U << exponent_bits) - 1) << fraction_bits; }
  // Where a format's largest value would be rounded up, if there were a next one.
  [[nodiscard]] double next_to(unsigned magnitude) const {
    return magnitude + 1 == infinity() ? 2 * value(magnitude) - value(magnitude - 1) : value(magnitude + 1);
  }
};

constexpr Format binary16{5, 10};
constexpr Format brain16{8, 7};

template <class T>
void expect_every_value_is_what_its_bits_mean(const Format& format) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float got = T{static_cast<std::uint16_t>(bits)}.to_float();
    const double expected = format.value(bits & 0x7FFF);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << std::hex << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(std::fabs(got)), expected) << std::hex << bits;
    ASSERT_EQ(std::signbit(got), bits >= 0x8000) << std::hex << bits;
  }
}

template <class T>
void expect_every_value_survives(const Format& format) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const T value{static_cast<std::uint16_t>(bits)};
    const unsigned back = T::from(value.to_float()).bits;
    ASSERT_EQ(back, std::isnan(format.value(bits & 0x7FFF)) ? 0x7FFFU : bits) << std::hex << bits;
  }
}

// Between each value and the next: what lies below the middle goes down, above it up, and the middle to the even one.
// Conversion grows with its argument, so that nothing else is left to be shown.
template <class T>
void expect_rounding_to_nearest_even(const Format& format) {
  for (unsigned magnitude = 0; magnitude < format.infinity(); ++magnitude) {
    const auto middle = static_cast<float>((format.value(magnitude) + format.next_to(magnitude)) / 2);
    const unsigned even = magnitude + magnitude % 2;
    for (const unsigned sign : {0U, 0x8000U}) {
      const float direction = sign == 0 ? 1.0F : -1.0F;
      ASSERT_EQ(T::from(direction * std::nextafter(middle, 0.0F)).bits, sign | magnitude) << std::hex << magnitude;
      ASSERT_EQ(T::from(direction * middle).bits, sign | even) << std::hex << magnitude;
      const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
      ASSERT_EQ(T::from(direction * above).bits, sign | (magnitude + 1)) << std::hex << magnitude;
    }
  }
}

// Every float, or every 4,099th: never less than the one before.
template <class T>
void expect_conversion_to_grow() {
  const std::uint32_t step = std::getenv("CUVMM_TEST_LONG") != nullptr ? 1 : 4099;
  unsigned before = 0;
  for (std::uint64_t bits = 0; bits <= 0x7F800000; bits += step) {
    const unsigned now = T::from(bits_as<float>(static_cast<std::uint32_t>(bits))).bits;
    ASSERT_LE(before, now) << std::hex << bits;
    before = now;
  }
}

TEST(Float16, IsWhatItsBitsMean) {
  expect_every_value_is_what_its_bits_mean<float16>(binary16);
}
TEST(Float16, SurvivesConversionThereAndBack) {
  expect_every_value_survives<float16>(binary16);
}
TEST(Float16, RoundsToNearestEven) {
  expect_rounding_to_nearest_even<float16>(binary16);
}
TEST(Float16, ConversionGrows) {
  expect_conversion_to_grow<float16>();
}
TEST(Float16, LargeValuesBecomeInfinities) {
  EXPECT_EQ(float16::from(65519.996F).bits, 0x7BFF);
  EXPECT_EQ(float16::from(65520.0F).bits, 0x7C00);
  EXPECT_EQ(float16::from(-std::numeric_limits<float>::max()).bits, 0xFC00);
  EXPECT_EQ(float16::from(-std::numeric_limits<float>::infinity()).bits, 0xFC00);
}

TEST(BFloat16, IsWhatItsBitsMean) {
  expect_every_value_is_what_its_bits_mean<bfloat16>(brain16);
}
TEST(BFloat16, SurvivesConversionThereAndBack) {
  expect_every_value_survives<bfloat16>(brain16);
}
TEST(BFloat16, RoundsToNearestEven) {
  expect_rounding_to_nearest_even<bfloat16>(brain16);
}
TEST(BFloat16, ConversionGrows) {
  expect_conversion_to_grow<bfloat16>();
}
TEST(BFloat16, EveryNanIsTheCanonicalOne) {
  EXPECT_EQ(bfloat16::from(bits_as<float>(0x7F800001U)).bits, 0x7FFF);
  EXPECT_EQ(bfloat16::from(bits_as<float>(0xFFFFFFFFU)).bits, 0x7FFF);
  EXPECT_EQ(float16::from(bits_as<float>(0xFF800001U)).bits, 0x7FFF);
}

}  // namespace
}  // namespace cuvmm::gpu
