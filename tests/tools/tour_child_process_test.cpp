#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "tour/child_process.hpp"

namespace cuvmm::tour {
namespace {

// The test program is run once more, with one of these as its only test.
TEST(TourChild, DISABLED_Answers) {
  EXPECT_EQ(::getchar(), EOF);
  ::write(STDOUT_FILENO, "the answer", 10);
  ::_exit(0);
}
TEST(TourChild, DISABLED_EndsWithStatus3) {
  ::_exit(3);
}
TEST(TourChild, DISABLED_EndsByASignal) {
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
}
TEST(TourChild, DISABLED_NeverEnds) {
  while (true) ::pause();
}

std::string run(const std::string& test, std::chrono::milliseconds deadline = std::chrono::minutes(2)) {
  return output_of_self({"--gtest_also_run_disabled_tests", "--gtest_filter=TourChild.DISABLED_" + test}, deadline);
}

std::string failure_of(const std::string& test, std::chrono::milliseconds deadline = std::chrono::minutes(2)) {
  try {
    run(test, deadline);
    return "none";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(TourChildProcess, GivesWhatTheChildWrote) {
  const std::string output = run("Answers");
  EXPECT_TRUE(output.ends_with("the answer")) << output;
}

TEST(TourChildProcess, TellsHowTheChildFailed) {
  EXPECT_EQ(failure_of("EndsWithStatus3"), "a child process ended with status 3");
  EXPECT_EQ(failure_of("EndsByASignal"), "a child process ended by signal 15");
}

TEST(TourChildProcess, EndsAChildThatGivesNoAnswerInTime) {
  EXPECT_EQ(failure_of("NeverEnds", std::chrono::milliseconds(200)), "a child process gave no answer in time");
}

}  // namespace
}  // namespace cuvmm::tour
