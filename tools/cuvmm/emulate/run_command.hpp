// Running another program in place of this one.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace cuvmm::emulate {

// The command cannot be run. The text is for people.
class CannotRun : public std::runtime_error {
 public:
  CannotRun(const std::string& what, int exit_status) : std::runtime_error(what), exit_status_(exit_status) {}
  // As shells have it: 127 if there is no such program, 126 if it cannot be run.
  [[nodiscard]] int exit_status() const noexcept { return exit_status_; }

 private:
  int exit_status_;
};

// Runs the program, which is looked for in PATH, with this process's environment and descriptors until it ends. Returns
// its exit status, or 128 + N if signal N ended it. Signals that other processes send to this one meanwhile, and that
// ask a program to end or are its own to define, are sent on to it; those of the terminal reach it by themselves.
// For a process with one thread. Throws CannotRun.
[[nodiscard]] int run_command(const std::vector<std::string>& words);

}  // namespace cuvmm::emulate
