#include "conformance/answers.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cuvmm::conformance {

namespace {

class Answers : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::map<std::string, std::string> read(const std::string& content) {
    std::ofstream{path_} << content;
    return read_answers(path_);
  }
  std::string path_ = testing::TempDir() + "answers_" + std::to_string(getpid()) + ".tsv";
};

TEST_F(Answers, ReadsIdsAndAnswers) {
  const auto answers = read("a.one\tOK\nb.two\tINVALID_VALUE OK/0\nc.empty\t\n");
  EXPECT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers.at("b.two"), "INVALID_VALUE OK/0");
  EXPECT_EQ(answers.at("c.empty"), "");
}

TEST_F(Answers, RefusesALineWithoutTab) {
  EXPECT_THROW(read("a.one OK\n"), std::runtime_error);
}

TEST_F(Answers, RefusesAnIdThatComesTwice) {
  EXPECT_THROW(read("a.one\tOK\na.one\tOK\n"), std::runtime_error);
}

TEST_F(Answers, RefusesAMissingFile) {
  EXPECT_THROW(static_cast<void>(read_answers(path_ + ".not_there")), std::runtime_error);
}

}  // namespace

}  // namespace cuvmm::conformance
