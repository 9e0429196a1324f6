#include "command/child_process.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace cuvmm::command {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void throw_system_error(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw_system_error(errno, "a pipe to a child process");
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    ::close(ends_[0]);
    close_writing_end();
  }
  void close_writing_end() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  [[nodiscard]] int reading_end() const { return ends_[0]; }
  [[nodiscard]] int writing_end() const { return ends_[1]; }

 private:
  std::array<int, 2> ends_{-1, -1};
};

// A started process, which does not outlive this object.
class Child {
 public:
  explicit Child(pid_t process) : process_(process) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ == 0) return;
    ::kill(process_, SIGKILL);
    wait();
  }
  int wait() {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = 0;
    return status;
  }

 private:
  pid_t process_;
};

// What a child process has from us.
class FileActions {
 public:
  FileActions() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  FileActions(FileActions&&) = delete;
  FileActions& operator=(FileActions&&) = delete;
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }

  void pass(int descriptor, int as) { posix_spawn_file_actions_adddup2(&actions_, descriptor, as); }
  void drop_output() { posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0); }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const noexcept { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

pid_t start_self(const std::vector<std::string>& arguments, const FileActions& actions, char* const* environment) {
  std::vector<std::string> words{"cuvmm"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t process = 0;
  const int error = ::posix_spawn(&process, "/proc/self/exe", actions.get(), nullptr, pointers.data(), environment);
  if (error != 0) throw_system_error(error, "a child process");
  return process;
}

pid_t start_self(const std::vector<std::string>& arguments, int standard_output) {
  FileActions actions;
  actions.pass(standard_output, STDOUT_FILENO);
  return start_self(arguments, actions, environ);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("ended with status {}", WEXITSTATUS(status));
}

// All that comes until the other side closes its end. Throws at the deadline.
std::string read_until_closed(int descriptor, Clock::time_point deadline) {
  std::string text;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wanted{descriptor, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) throw_system_error(errno, "waiting for a child process");
    if (ready == 0) throw std::runtime_error("a child process gave no answer in time");
    std::array<char, 4096> part{};
    const ssize_t count = ::read(descriptor, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error(errno, "reading from a child process");
    if (count == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

std::string output_of_self(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline) {
  Pipe pipe;
  Child child(start_self(arguments, pipe.writing_end()));
  pipe.close_writing_end();
  std::string text = read_until_closed(pipe.reading_end(), Clock::now() + deadline);
  const int status = child.wait();
  if (WIFSIGNALED(status)) {
    throw std::runtime_error(fmt::format("a child process ended by signal {}", WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) != 0) {
    throw std::runtime_error(fmt::format("a child process ended with status {}", WEXITSTATUS(status)));
  }
  return text;
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, int inherited, std::string_view without_variable)
    : process_(0) {
  FileActions actions;
  actions.drop_output();
  // A descriptor that is passed on as itself would stay close-on-exec.
  const int copy = ::fcntl(inherited, F_DUPFD_CLOEXEC, inherited_descriptor + 1);
  if (copy < 0) throw_system_error(errno, "a descriptor for a child process");
  actions.pass(copy, inherited_descriptor);
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view setting(*each);
    if (setting.substr(0, setting.find('=')) != without_variable) environment.push_back(*each);
  }
  environment.push_back(nullptr);
  try {
    process_ = start_self(arguments, actions, environment.data());
  } catch (...) {
    ::close(copy);
    throw;
  }
  ::close(copy);
}

std::string ChildProcess::wait(std::chrono::milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  while (process_ != 0) {
    int status = 0;
    const pid_t ended = ::waitpid(process_, &status, WNOHANG);
    if (ended == process_) {
      process_ = 0;
      return how_it_ended(status);
    }
    if (ended < 0 && errno != EINTR) break;
    if (Clock::now() > until) {
      kill();
      return "gave no sign in time";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

void ChildProcess::kill() noexcept {
  if (process_ == 0) return;
  ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = 0;
}

}  // namespace cuvmm::command
