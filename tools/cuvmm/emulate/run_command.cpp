#include "emulate/run_command.hpp"

#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "command/words.hpp"

namespace cuvmm::emulate {
namespace {

// While it lives, the signals that are sent on, and that of an ending child, wait until they are asked for.
class HeldSignals {
 public:
  HeldSignals() {
    ::sigemptyset(&held_);
    for (const int signal : {SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2}) ::sigaddset(&held_, signal);
    std::signal(SIGCHLD, SIG_DFL);  // ignored, as a parent may have left it, it would take the child's status away
    ::sigprocmask(SIG_BLOCK, &held_, &before_);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  HeldSignals(HeldSignals&&) = delete;
  HeldSignals& operator=(HeldSignals&&) = delete;
  ~HeldSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  // The next one.
  [[nodiscard]] siginfo_t wait() const {
    siginfo_t signal{};
    while (::sigwaitinfo(&held_, &signal) < 0 && errno == EINTR) {
    }
    return signal;
  }
  // What was held before: what a new program is to begin with.
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

pid_t start(const std::vector<std::string>& words, const sigset_t& signal_mask) {
  std::vector<std::string> copies = words;
  std::vector<char*> pointers;
  pointers.reserve(copies.size() + 1);
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &signal_mask);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t process = 0;
  const int error = ::posix_spawnp(&process, pointers.front(), nullptr, &attributes, pointers.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error == 0) return process;
  constexpr int cannot_be_run = 126;
  constexpr int not_found = 127;
  throw CannotRun(fmt::format("{} cannot be run: {}.", command::quoted(words.front()), std::strerror(error)),
                  error == ENOENT || error == ENOTDIR ? not_found : cannot_be_run);
}

}  // namespace

int run_command(const std::vector<std::string>& words) {
  constexpr int ended_by_signal = 128;
  const HeldSignals signals;
  const pid_t process = start(words, signals.before());
  while (true) {
    const siginfo_t signal = signals.wait();
    if (signal.si_signo != SIGCHLD) {
      if (signal.si_code <= 0) ::kill(process, signal.si_signo);  // sent by a process, not by the terminal
      continue;
    }
    int status = 0;
    if (::waitpid(process, &status, WNOHANG) != process) continue;
    return WIFSIGNALED(status) ? ended_by_signal + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

}  // namespace cuvmm::emulate
