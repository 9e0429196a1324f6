#include "emulator/kernels/host_kernels.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "gpu/checksum.hpp"

namespace cuvmm::emulator::host_kernels {
namespace {

constexpr std::byte untouched{0xA5};

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// The definition, a byte at a time.
std::uint64_t reference_checksum(std::span<const std::byte> source, std::uint64_t first_word) {
  std::uint64_t sum = 0;
  for (std::size_t begin = 0; begin < source.size(); begin += 8) {
    std::uint64_t word = 0;
    for (std::size_t byte = 8; byte-- > 0;) {
      word = word << 8;
      if (begin + byte < source.size()) word |= std::to_integer<std::uint64_t>(source[begin + byte]);
    }
    sum += gpu::checksum_term(word, first_word + begin / 8);
  }
  return sum;
}

TEST(HostFill, RepeatsThePatternLowestByteFirstAndNoFurther) {
  constexpr std::uint64_t pattern = 0x8877665544332211ULL;
  for (std::size_t size = 0; size < 40; ++size) {
    std::vector<std::byte> bytes(48, untouched);
    fill(std::span(bytes).first(size), pattern);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      const auto expected = at < size ? static_cast<std::byte>(pattern >> (8 * (at % 8))) : untouched;
      ASSERT_EQ(bytes[at], expected) << "byte " << at << " of " << size;
    }
  }
}

TEST(HostCopy, CopiesAllAndNoFurther) {
  const std::vector<std::byte> source = random_bytes(100, 1);
  for (const std::size_t size : {0, 1, 7, 8, 9, 100}) {
    std::vector<std::byte> bytes(108, untouched);
    copy(std::span(bytes).subspan(3, size), std::span(source).first(size));
    EXPECT_TRUE(std::equal(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(size), bytes.begin() + 3));
    EXPECT_EQ(bytes[2], untouched);
    EXPECT_EQ(bytes[3 + size], untouched);
  }
}

TEST(HostChecksum, EqualsItsDefinitionAtEverySizeAndAlignment) {
  const std::vector<std::byte> content = random_bytes(80, 2);
  for (std::size_t begin = 0; begin < 8; ++begin) {
    for (std::size_t size = 0; begin + size <= content.size(); ++size) {
      const auto part = std::span<const std::byte>(content).subspan(begin, size);
      ASSERT_EQ(checksum(part, 5), reference_checksum(part, 5)) << "from " << begin << ", " << size << " bytes";
    }
  }
}

TEST(HostChecksum, AddsUpOverPieces) {
  const std::vector<std::byte> content = random_bytes(1001, 3);
  const std::span<const std::byte> whole(content);
  for (const std::size_t words : {0, 1, 60, 125}) {
    EXPECT_EQ(checksum(whole.first(8 * words), 0) + checksum(whole.subspan(8 * words), words), checksum(whole, 0));
  }
}

TEST(HostChecksum, NoticesEveryFlippedBitAndEveryExchange) {
  std::vector<std::byte> content = random_bytes(77, 4);
  const std::uint64_t honest = checksum(content, 0);
  for (std::byte& byte : content) {
    for (int bit = 0; bit < 8; ++bit) {
      byte ^= std::byte{1} << bit;
      EXPECT_NE(checksum(content, 0), honest);
      byte ^= std::byte{1} << bit;
    }
  }
  EXPECT_EQ(checksum(content, 0), honest);
  std::swap_ranges(content.begin(), content.begin() + 8, content.begin() + 16);
  EXPECT_NE(checksum(content, 0), honest);
}

TEST(HostAlias, SumsWhatIsSeenAtTheOtherAddressAfterTheCopy) {
  const std::vector<std::byte> source = random_bytes(77, 5);
  for (const std::size_t size : {0, 1, 8, 77}) {
    std::vector<std::byte> memory(80, untouched);
    const auto there = std::span(memory).first(size);
    EXPECT_EQ(alias(there, std::span(source).first(size), there, 3),
              reference_checksum(std::span(source).first(size), 3));
    EXPECT_TRUE(std::equal(there.begin(), there.end(), source.begin()));
    EXPECT_EQ(memory[size], untouched);
  }
  std::vector<std::byte> written(8), elsewhere(8, untouched);
  EXPECT_EQ(alias(written, std::span(source).first(8), elsewhere, 0), reference_checksum(elsewhere, 0));
}

TEST(HostRead, SumsWholeWords) {
  std::vector<std::byte> words(24, std::byte{0});
  words[0] = std::byte{5};
  words[9] = std::byte{1};
  words[23] = std::byte{0x80};
  EXPECT_EQ(sum_of_words(words), 5U + 256U + (std::uint64_t{0x80} << 56));
  EXPECT_EQ(sum_of_words(std::span(words).first(16)), 5U + 256U);
  EXPECT_EQ(sum_of_words({}), 0U);
}

TEST(HostScaleAdd, RoundsOnce) {
  // factor * x needs more than a float's digits: rounding it before the addition gives zero.
  const float x = 1.0F + std::ldexp(1.0F, -23);
  std::array<float, 3> y{-(x * x), 2.0F, 3.0F};
  scale_add(std::span(y).first(2), std::array{x, 4.0F}, x);
  EXPECT_EQ(y[0], std::ldexp(1.0F, -46));
  EXPECT_EQ(y[1], std::fma(x, 4.0F, 2.0F));
  EXPECT_EQ(y[2], 3.0F);
}

TEST(HostSpin, GivesUpAfterSoManyLooks) {
  const std::uint32_t flag = 0;
  EXPECT_FALSE(spin(flag, 0));
  EXPECT_FALSE(spin(flag, 3));
}

TEST(HostSpin, SeesAFlagThatAnotherThreadSets) {
  std::uint32_t flag = 0;
  bool seen = false;
  std::thread waiter([&] { seen = spin(flag, ~std::uint64_t{0}); });
  std::atomic_ref(flag).store(7, std::memory_order_release);
  waiter.join();
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace cuvmm::emulator::host_kernels
