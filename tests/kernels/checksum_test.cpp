#include "gpu/checksum.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace cuvmm::gpu {
namespace {

TEST(Mix64, IsTheSplitmixFinalizer) {
  // The first outputs of the published generator for the seed 0, whose states are multiples of one constant.
  EXPECT_EQ(mix64(0x9E3779B97F4A7C15ULL), 0xE220A8397B1DCDAFULL);
  EXPECT_EQ(mix64(2 * 0x9E3779B97F4A7C15ULL), 0x6E789E6AA1B965F4ULL);
}

TEST(ChecksumTerm, DependsOnTheWordAndOnItsIndex) {
  std::set<std::uint64_t> terms;
  for (std::uint64_t word = 0; word < 64; ++word) {
    for (std::uint64_t index = 0; index < 64; ++index) terms.insert(checksum_term(word, index));
  }
  EXPECT_EQ(terms.size(), 64U * 64U);
  EXPECT_FALSE(terms.contains(0));
}

TEST(ChecksumTerm, NoticesExchangedWords) {
  EXPECT_NE(checksum_term(1, 0) + checksum_term(2, 1), checksum_term(2, 0) + checksum_term(1, 1));
}

TEST(ChecksumWords, CountsAStartedWord) {
  EXPECT_EQ(checksum_words(0), 0U);
  EXPECT_EQ(checksum_words(1), 1U);
  EXPECT_EQ(checksum_words(8), 1U);
  EXPECT_EQ(checksum_words(9), 2U);
  EXPECT_EQ(checksum_words(~std::uint64_t{0}), std::uint64_t{1} << 61);
}

TEST(ChecksumWord, IsLittleEndianAndFilledUpWithZeros) {
  constexpr std::array<unsigned char, 11> content{1, 2, 3, 4, 5, 6, 7, 8, 0xFF, 0xFE, 0xFD};
  EXPECT_EQ(checksum_word(content.data(), content.size(), 0), 0x0807060504030201ULL);
  EXPECT_EQ(checksum_word(content.data(), content.size(), 1), 0xFDFEFFULL);
  EXPECT_EQ(checksum_word(content.data(), 9, 1), 0xFFULL);
}

}  // namespace
}  // namespace cuvmm::gpu
