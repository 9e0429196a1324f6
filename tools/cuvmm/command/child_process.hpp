// This program, run once more with other arguments.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace cuvmm::command {

// Runs this program with the arguments, the same environment and standard error, and nothing to read, and returns what
// it wrote to standard output. Throws std::runtime_error if it cannot be started, if it ended by a signal or with a
// status other than 0, or if it has not ended by the deadline, upon which it is killed.
[[nodiscard]] std::string output_of_self(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline);

// The descriptor by which a child process finds what it inherits from us.
inline constexpr int inherited_descriptor = 3;

// This program, running once more, with a descriptor that it inherits as inherited_descriptor; it has nothing to read,
// and what it writes to standard output is lost. It has the same environment, but for the variable that is left out.
// Not copied, since it ends the process, which does not outlive it.
class ChildProcess {
 public:
  // Throws std::system_error if it cannot be started.
  ChildProcess(const std::vector<std::string>& arguments, int inherited, std::string_view without_variable);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ChildProcess(ChildProcess&&) = delete;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess() { kill(); }

  [[nodiscard]] pid_t process() const noexcept { return process_; }

  // How it ended, in words: "ended with status 1"; empty if it ended well. It is given until the deadline to end by
  // itself, and is killed then: "gave no sign in time".
  [[nodiscard]] std::string wait(std::chrono::milliseconds deadline);

  // Ends it now (SIGKILL).
  void kill() noexcept;

 private:
  pid_t process_;
};

}  // namespace cuvmm::command
