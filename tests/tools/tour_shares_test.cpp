// A content as the sum of what the ranks of a team have.
#include <gtest/gtest.h>

#include <vector>

#include "tour/shares.hpp"

namespace cuvmm::tour {
namespace {

std::vector<std::byte> content_of_bytes(std::size_t size) {
  std::vector<std::byte> content(size);
  for (std::size_t at = 0; at < size; ++at) content[at] = static_cast<std::byte>(at * 7 + 1);
  return content;
}

// The sum of the shares of those ranks, of a content that begins `first_word` words behind another one.
std::vector<std::byte> sum_of(const std::vector<std::size_t>& of, std::size_t ranks, std::uint64_t first_word,
                              std::span<const std::byte> content) {
  const std::size_t words = (content.size() + 15) / 16 * 2;
  std::vector<std::uint64_t> sums(words), share(words);
  for (const std::size_t rank : of) {
    write_share(rank, ranks, first_word, content, std::as_writable_bytes(std::span(share)));
    for (std::size_t at = 0; at < words; ++at) sums[at] += share[at];
  }
  const auto bytes = std::as_bytes(std::span(sums));
  return {bytes.begin(), bytes.end()};
}

TEST(Shares, AddUpToTheContentFilledUpWithZeros) {
  for (const std::size_t size : {1, 8, 15, 16, 17, 1000})
    for (const std::size_t ranks : {1, 2, 4, 8}) {
      const std::vector<std::byte> content = content_of_bytes(size);
      std::vector<std::size_t> all(ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank) all[rank] = rank;
      std::vector<std::byte> expected = content;
      expected.resize((size + 15) / 16 * 16);
      EXPECT_EQ(sum_of(all, ranks, 5, content), expected) << size << " bytes, " << ranks << " ranks";
    }
}

TEST(Shares, AreNothingOfTheContentWhereOneIsMissingOrCountedTwice) {
  const std::vector<std::byte> content = content_of_bytes(64);
  const auto whole = sum_of({0, 1, 2, 3}, 4, 0, content);
  for (const std::vector<std::size_t>& wrong :
       {std::vector<std::size_t>{0, 1, 2}, {1, 2, 3}, {0, 0, 1, 2, 3}, {0, 1, 2, 2}, {3}}) {
    const auto other = sum_of(wrong, 4, 0, content);
    for (std::size_t word = 0; word < content.size() / 8; ++word)
      EXPECT_FALSE(std::equal(other.begin() + static_cast<std::ptrdiff_t>(8 * word),
                              other.begin() + static_cast<std::ptrdiff_t>(8 * word + 8),
                              whole.begin() + static_cast<std::ptrdiff_t>(8 * word)));
  }
}

TEST(Shares, DependOnThePlaceInTheWhole) {
  const std::vector<std::byte> content(16);
  EXPECT_NE(sum_of({0}, 2, 0, content), sum_of({0}, 2, 2, content));
}

}  // namespace
}  // namespace cuvmm::tour
