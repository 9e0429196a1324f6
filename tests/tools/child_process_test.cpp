#include "command/child_process.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace cuvmm::command {
namespace {

// What this program does where it is its own child.
[[noreturn]] void be_the_child(const std::string& task) {
  if (task == "answer") {
    const bool nothing_to_read = std::getchar() == EOF;
    std::fputs(nothing_to_read ? "the answer" : "something to read", stdout);
    std::exit(0);
  }
  if (task == "end with status 3") std::exit(3);
  if (task == "end by a signal") std::raise(SIGTERM);
  while (true) ::pause();
}

constexpr std::chrono::milliseconds long_enough = std::chrono::minutes(2);

std::string failure_of(const std::string& task, std::chrono::milliseconds deadline) {
  try {
    return "none, but " + output_of_self({task}, deadline);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(ChildProcess, GivesWhatTheChildWrote) {
  EXPECT_EQ(output_of_self({"answer"}, long_enough), "the answer");
}

TEST(ChildProcess, TellsHowTheChildFailed) {
  EXPECT_EQ(failure_of("end with status 3", long_enough), "a child process ended with status 3");
  EXPECT_EQ(failure_of("end by a signal", long_enough), "a child process ended by signal 15");
}

TEST(ChildProcess, EndsAChildThatGivesNoAnswerInTime) {
  EXPECT_EQ(failure_of("wait", std::chrono::milliseconds(200)), "a child process gave no answer in time");
}

}  // namespace
}  // namespace cuvmm::command

int main(int count, char** words) {
  if (count == 2 && words[1][0] != '-') cuvmm::command::be_the_child(words[1]);
  ::testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
