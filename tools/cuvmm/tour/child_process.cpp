#include "tour/child_process.hpp"

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

namespace cuvmm::tour {
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

pid_t start_self(const std::vector<std::string>& arguments, int standard_output) {
  std::vector<std::string> words{"cuvmm"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, standard_output, STDOUT_FILENO);
  pid_t process = 0;
  const int error = ::posix_spawn(&process, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw_system_error(error, "a child process");
  return process;
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

}  // namespace cuvmm::tour
