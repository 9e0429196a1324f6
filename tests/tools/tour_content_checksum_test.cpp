#include <gtest/gtest.h>

#include <vector>

#include "tour/content_checksum.hpp"

namespace cuvmm::tour {
namespace {

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t at = 0; at < count; ++at) bytes[at] = static_cast<std::byte>(at * 37 + 11);
  return bytes;
}

std::uint64_t by_definition(std::span<const std::byte> bytes) {
  const auto* content = reinterpret_cast<const unsigned char*>(bytes.data());
  std::uint64_t sum = 0;
  for (std::uint64_t index = 0; index < gpu::checksum_words(bytes.size()); ++index) {
    sum += gpu::checksum_term(gpu::checksum_word(content, bytes.size(), index), index);
  }
  return sum;
}

TEST(TourContentChecksum, IsZeroForNothing) {
  ContentChecksum checksum;
  checksum.add({});
  EXPECT_EQ(checksum.value(), 0U);
  EXPECT_EQ(checksum.bytes(), 0U);
}

TEST(TourContentChecksum, EqualsItsDefinitionAtEverySize) {
  const std::vector<std::byte> bytes = some_bytes(40);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    ContentChecksum checksum;
    checksum.add(std::span(bytes).first(size));
    EXPECT_EQ(checksum.value(), by_definition(std::span(bytes).first(size))) << size;
    EXPECT_EQ(checksum.bytes(), size);
  }
}

TEST(TourContentChecksum, DoesNotDependOnThePieces) {
  const std::vector<std::byte> bytes = some_bytes(40);
  for (std::size_t first = 0; first <= 20; ++first) {
    for (std::size_t second = 0; second <= 20; ++second) {
      ContentChecksum checksum;
      checksum.add(std::span(bytes).first(first));
      checksum.add(std::span(bytes).subspan(first, second));
      checksum.add(std::span(bytes).subspan(first + second));
      ASSERT_EQ(checksum.value(), by_definition(bytes)) << first << " + " << second;
    }
  }
}

TEST(TourContentChecksum, MayBeAskedInBetween) {
  const std::vector<std::byte> bytes = some_bytes(12);
  ContentChecksum checksum;
  checksum.add(std::span(bytes).first(3));
  EXPECT_EQ(checksum.value(), by_definition(std::span(bytes).first(3)));
  checksum.add(std::span(bytes).subspan(3));
  EXPECT_EQ(checksum.value(), by_definition(bytes));
}

}  // namespace
}  // namespace cuvmm::tour
