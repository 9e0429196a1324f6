// A machine of a test's own, and processes on it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "driver/abi.hpp"
#include "message.hpp"
#include "temporary_directory.hpp"

namespace cuvmm::tests {

using namespace cuvmm::abi;
using emulator::memory::FileDescriptor;

inline constexpr std::uint64_t chunk = std::uint64_t{2} << 20;
inline constexpr int descriptors = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
inline constexpr int fabric = CU_MEM_HANDLE_TYPE_FABRIC;

// Whether it becomes true; long enough for a machine that has much else to do.
template <class Condition>
bool becomes_true(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

inline std::string content_of_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// The processes that run as brokers of the machine in that directory, those that have ended already not among them.
inline std::vector<pid_t> brokers_of(const std::string& path) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string words = content_of_file(entry.path() / "cmdline");
    const std::size_t end = words.find('\0');
    if (end == std::string::npos || words.find("broker") > end ||
        words.compare(end + 1, path.size() + 1, path + '\0') != 0)
      continue;
    found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

// In a directory of its own. Declared before its processes, it sees to it that nothing is left of it after them.
class Machine {
 public:
  explicit Machine(std::string settings = "memory=2GiB") : settings_(std::move(settings)) {}
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { EXPECT_TRUE(ends()); }

  [[nodiscard]] std::string path() const { return directory_.path("machine"); }
  [[nodiscard]] std::string settings() const { return "mode=strict,machine=" + path() + "," + settings_; }
  [[nodiscard]] std::string scratch(const std::string& name) const { return directory_.path(name); }

  // Whether its broker ends by itself, and cleans up.
  [[nodiscard]] bool ends() const {
    return becomes_true([&] { return !std::filesystem::exists(path()) && brokers_of(path()).empty(); });
  }
  // The one there is, once an older one that has given up its place has ended, too. Never a number that stands for
  // other processes: it may be killed.
  [[nodiscard]] pid_t broker() const {
    std::vector<pid_t> all;
    if (!becomes_true([&] { return (all = brokers_of(path())).size() == 1; }))
      throw std::runtime_error("the machine has " + std::to_string(all.size()) + " brokers");
    return all.front();
  }

 private:
  TemporaryDirectory directory_;
  const std::string settings_;
};

// A process that calls the driver as it is told.
class Actor {
 public:
  struct Reply {
    int code = -2;  // -1: no driver could be made; -2: the process is gone
    std::string text;
    FileDescriptor descriptor;
    [[nodiscard]] std::uint64_t number() const { return std::strtoull(text.c_str(), nullptr, 10); }
  };

  // With these settings instead of the machine's; with these variables beside the test's.
  explicit Actor(const Machine& machine, const std::string& settings = {}, std::vector<std::string> environment = {})
      : errors_(machine.scratch("errors-" + std::to_string(next_number()))) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    socket_ = FileDescriptor(ends[0]);
    const FileDescriptor theirs(ends[1]);
    environment.push_back("CUVMM_EMULATOR=" + (settings.empty() ? machine.settings() : settings));
    start(theirs.get(), environment);
  }
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;
  ~Actor() { end(); }

  [[nodiscard]] pid_t process() const { return process_; }
  [[nodiscard]] std::string errors() const { return content_of_file(errors_); }

  Reply ask(const std::string& line, int descriptor = -1) {
    if (!send_message(socket_.get(), line, descriptor)) return {};
    return answer();
  }
  // Without waiting for the answer, which is to be fetched before the next one.
  void tell(const std::string& line) { EXPECT_TRUE(send_message(socket_.get(), line)); }
  Reply answer() {
    auto message = receive_message(socket_.get());
    if (!message) return {};
    const std::size_t space = message->text.find(' ');
    return {std::stoi(message->text), message->text.substr(space + 1), std::move(message->descriptor)};
  }

  // What must succeed.
  Reply done(const std::string& line, int descriptor = -1) {
    Reply reply = ask(line, descriptor);
    EXPECT_EQ(reply.code, CUDA_SUCCESS) << line << ": " << reply.text << "\n" << errors();
    if (reply.code > 0) {
      ADD_FAILURE() << ask("explain").text;
    }
    return reply;
  }

  Actor& init() {
    (void)done("init");
    return *this;
  }
  std::uint64_t create(int handle_types, std::uint64_t bytes = chunk) {
    return done("create " + std::to_string(bytes) + " " + std::to_string(handle_types)).number();
  }
  void release(std::uint64_t handle) { (void)done("release " + std::to_string(handle)); }
  std::uint64_t map(std::uint64_t handle, std::uint64_t bytes = chunk) {
    return done("map " + std::to_string(handle) + " " + std::to_string(bytes)).number();
  }
  void unmap(std::uint64_t address) { (void)done("unmap " + std::to_string(address) + " " + std::to_string(chunk)); }
  void write(std::uint64_t address, int value, std::uint64_t bytes = chunk) {
    (void)done("write " + std::to_string(address) + " " + std::to_string(value) + " " + std::to_string(bytes));
  }
  int read(std::uint64_t address) { return static_cast<int>(done("read " + std::to_string(address)).number()); }
  FileDescriptor export_descriptor(std::uint64_t handle) {
    return std::move(done("export " + std::to_string(handle)).descriptor);
  }
  std::uint64_t import(const FileDescriptor& descriptor) { return done("import", descriptor.get()).number(); }
  std::string export_fabric(std::uint64_t handle) { return done("export-fabric " + std::to_string(handle)).text; }
  std::uint64_t free_bytes() { return done("info").number(); }
  // The process that it makes, which is to be killed.
  pid_t fork(const std::string& how = "fork") {
    const auto child = static_cast<pid_t>(done(how).number());
    if (child <= 0) throw std::runtime_error("no forked child");
    return child;
  }

  // Ends the process, as the system does when somebody kills it, and waits until it is gone.
  void kill() {
    if (process_ < 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  // Lets the process end by itself.
  void end() {
    if (process_ < 0) return;
    socket_ = FileDescriptor();
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  // Waits until it has ended, and answers how.
  int wait_status() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return status;
  }

 private:
  static int next_number() {
    static int last = 0;
    return ++last;
  }

  void start(int socket, std::vector<std::string> environment) {
    for (char** each = environ; *each != nullptr; ++each)
      if (const std::string_view setting(*each); !setting.starts_with("CUVMM_")) environment.emplace_back(setting);
    std::vector<char*> pointers;
    pointers.reserve(environment.size() + 1);
    for (std::string& setting : environment) pointers.push_back(setting.data());
    pointers.push_back(nullptr);
    std::string program = CUVMM_ACTOR;
    char* words[] = {program.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    constexpr int control = 3;
    const FileDescriptor copy(::fcntl(socket, F_DUPFD_CLOEXEC, control + 1));
    ::posix_spawn_file_actions_adddup2(&actions, copy.get(), control);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const int error = ::posix_spawn(&process_, CUVMM_ACTOR, &actions, nullptr, words, pointers.data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("no actor");
  }

  const std::string errors_;
  FileDescriptor socket_;
  pid_t process_ = -1;
};

}  // namespace cuvmm::tests
