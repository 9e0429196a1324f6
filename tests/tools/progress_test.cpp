#include <gtest/gtest.h>

#include "command/progress.hpp"

namespace cuvmm::command {
namespace {

TEST(ProgressLine, ShowsTheShare) {
  EXPECT_EQ(progress_line(0, 200, "read"), "[..............................]   0 %  read");
  EXPECT_EQ(progress_line(100, 200, "4.16.2"), "[###############...............]  50 %  4.16.2");
  EXPECT_EQ(progress_line(200, 200, ""), "[##############################] 100 %  ");
}

TEST(ProgressLine, StaysWithinItsBounds) {
  EXPECT_EQ(progress_line(300, 200, ""), progress_line(200, 200, ""));
  EXPECT_EQ(progress_line(0, 0, ""), progress_line(200, 200, ""));
}

TEST(Progress, DrawsOverItsLineAndWipesIt) {
  std::string terminal;
  {
    Progress progress(10, [&](const std::string& text) { terminal += text; });
    progress.label("x");
    EXPECT_EQ(terminal, "");
    progress.advance(5);
    EXPECT_EQ(terminal, "\r" + progress_line(5, 10, "x"));
  }
  const std::size_t length = progress_line(5, 10, "x").size();
  EXPECT_EQ(terminal, "\r" + progress_line(5, 10, "x") + "\r" + std::string(length, ' ') + "\r");
}

TEST(Progress, IsDrawnAnewAfterAWipe) {
  std::string terminal;
  Progress progress(10, [&](const std::string& text) { terminal += text; });
  progress.advance(5);
  progress.wipe();
  terminal.clear();
  progress.wipe();
  EXPECT_EQ(terminal, "");
  progress.advance(5);
  EXPECT_EQ(terminal, "\r" + progress_line(10, 10, ""));
}

TEST(Progress, DrawsNothingWithoutATerminal) {
  EXPECT_FALSE(terminal_writer(1));  // too little to be noticed, wherever standard error goes
  Progress progress(10);
  progress.advance(5);
  progress.wipe();
}

}  // namespace
}  // namespace cuvmm::command
