#include "conformance/answers.hpp"

#include <gtest/gtest.h>

namespace cuvmm::conformance {

namespace {

Answers parse(const std::string& text) {
  return parse_answers(text, "the test's answers");
}

TEST(Answers, AreReadByTheirIds) {
  const Answers answers = parse("a.one\tOK\nb.two\tINVALID_VALUE OK/0\nc.empty\t\n");
  EXPECT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers.at("b.two"), "INVALID_VALUE OK/0");
  EXPECT_EQ(answers.at("c.empty"), "");
}

TEST(Answers, ALineWithoutTabIsRefused) {
  EXPECT_THROW(parse("a.one OK\n"), std::runtime_error);
}

TEST(Answers, AnIdThatComesTwiceIsRefused) {
  EXPECT_THROW(parse("a.one\tOK\na.one\tOK\n"), std::runtime_error);
}

TEST(Answers, AreBuiltInForARecordedProfileAlone) {
  EXPECT_GE(recorded_answers("h200-580").value().size(), 1629U);
  EXPECT_FALSE(recorded_answers("no-vmm").has_value());
}

}  // namespace

}  // namespace cuvmm::conformance
