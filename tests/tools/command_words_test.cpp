#include <gtest/gtest.h>

#include "command/words.hpp"

namespace cuvmm::command {
namespace {

TEST(CommandWords, NumbersHaveSeparators) {
  EXPECT_EQ(with_separators(0), "0");
  EXPECT_EQ(with_separators(999), "999");
  EXPECT_EQ(with_separators(1000), "1,000");
  EXPECT_EQ(with_separators(123456), "123,456");
  EXPECT_EQ(with_separators(1234567890), "1,234,567,890");
}

TEST(CommandWords, CountsBytesInWords) {
  EXPECT_EQ(bytes_in_words(0), "0 bytes");
  EXPECT_EQ(bytes_in_words(1), "1 byte");
  EXPECT_EQ(bytes_in_words(1234), "1,234 bytes");
}

TEST(CommandWords, QuotesKeepTheTerminalSafe) {
  EXPECT_EQ(quoted("a b"), "'a b'");
  EXPECT_EQ(quoted("a\x1B[2Jb\n"), "'a?[2Jb?'");
}

}  // namespace
}  // namespace cuvmm::command
