// A process of a test: a copy of it that does some work and ends.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <system_error>
#include <utility>

namespace cuvmm::tests {

// Its work answers 0 if all was as it should be. Made before the test has threads or a driver.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<int()>& work) : process_(::fork()) {
    if (process_ < 0)
      throw std::system_error(errno, std::generic_category(), "fork");  // -1 means all processes to kill
    if (process_ != 0) return;
    (void)::alarm(280);
    ::_exit(result_of(work));
  }
  ChildProcess(ChildProcess&& other) noexcept : process_(std::exchange(other.process_, -1)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() { kill(); }

  [[nodiscard]] pid_t process() const { return process_; }

  // What the work answered; -1 if the process was ended by a signal.
  int wait() {
    int status = 0;
    if (process_ < 0 || ::waitpid(std::exchange(process_, -1), &status, 0) < 0) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // Asks it by SIGTERM to come to an end, and waits.
  int stop() {
    if (process_ > 0) ::kill(process_, SIGTERM);
    return wait();
  }
  void kill() {
    if (process_ < 0) return;
    ::kill(process_, SIGKILL);
    (void)wait();
  }

 private:
  static int result_of(const std::function<int()>& work) noexcept {
    try {
      return work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
      return 99;
    }
  }

  pid_t process_;
};

}  // namespace cuvmm::tests
