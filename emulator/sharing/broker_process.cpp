#include "emulator/sharing/broker_process.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace cuvmm::emulator::sharing {
namespace {

using memory::FileDescriptor;

constexpr std::string_view program_name = "cuvmm-emulator-broker";

std::string folder_of_this_code() {
  Dl_info object{};
  if (::dladdr(reinterpret_cast<const void*>(&broker_program), &object) == 0 || object.dli_fname == nullptr) return {};
  std::string path = object.dli_fname;
  // A program is named as it was started, perhaps without a folder.
  if (char* const real = ::realpath(path.find('/') == std::string::npos ? "/proc/self/exe" : path.c_str(), nullptr)) {
    path = real;
    std::free(real);
  }
  return path.substr(0, path.rfind('/'));
}

FileDescriptor listening(const broker::MachineDirectory& directory) {
  const auto checked = [&](bool done) {
    if (!done)
      throw std::system_error(errno, std::generic_category(),
                              fmt::format("cannot listen in the directory '{}'", directory.path()));
  };
  ::unlinkat(directory.descriptor(), broker::socket_name, 0);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  checked(static_cast<bool>(socket));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  directory.short_path(broker::socket_name).copy(address.sun_path, sizeof address.sun_path - 1);
  checked(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  checked(::listen(socket.get(), SOMAXCONN) == 0);
  return socket;
}

// Without what would load other code into the broker than its own.
std::vector<char*> environment() {
  std::vector<char*> kept;
  for (char** each = environ; *each != nullptr; ++each)
    if (const std::string_view setting(*each); !setting.starts_with("LD_PRELOAD=") && !setting.starts_with("LD_AUDIT="))
      kept.push_back(*each);
  kept.push_back(nullptr);
  return kept;
}

// What a new program begins with: none of this process's descriptors and signal handlers, and a session of its own, so
// that no terminal ends it.
class SpawnSettings {
 public:
  SpawnSettings(int listener, int directory) {
    ::posix_spawn_file_actions_init(&actions_);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_addopen(&actions_, standard, "/dev/null", O_RDWR, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, listener, broker::listener_descriptor);
    ::posix_spawn_file_actions_adddup2(&actions_, directory, broker::directory_descriptor);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, broker::directory_descriptor + 1);
    ::posix_spawn_file_actions_addchdir_np(&actions_, "/");
    ::posix_spawnattr_init(&attributes_);
    sigset_t signals;
    ::sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes_, &signals);
    ::sigfillset(&signals);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  }
  ~SpawnSettings() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// A copy above those numbers that the broker finds its descriptors under.
FileDescriptor out_of_the_way(int descriptor) {
  FileDescriptor copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, broker::directory_descriptor + 1));
  if (!copy) throw std::system_error(errno, std::generic_category(), "cannot start the emulated machine's broker");
  return copy;
}

// A broker ends at once, and leaves another process to the system. How this one ended, if it did until the deadline; 0
// if somebody of this process has waited for it already.
std::optional<int> end_of(pid_t process, std::chrono::steady_clock::time_point deadline) {
  constexpr std::chrono::milliseconds pause(2);
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(process, &status, WNOHANG);
    if (ended == process) return status;
    if (ended < 0 && errno != EINTR) return 0;
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

std::string broker_program() {
  if (const char* const named = ::secure_getenv("CUVMM_EMULATOR_BROKER"); named != nullptr && *named != '\0')
    return named;
  const std::string here = folder_of_this_code();
  std::vector<std::string> candidates;
  if (!here.empty())
    for (const std::string_view folder : {".", CUVMM_BROKER_FROM_PROGRAMS})
      candidates.push_back(fmt::format("{}/{}/{}", here, folder, program_name));
  for (const std::string_view folder : {CUVMM_BROKER_INSTALLED, CUVMM_BROKER_BUILT})
    candidates.push_back(fmt::format("{}/{}", folder, program_name));
  for (const std::string& candidate : candidates)
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  throw std::system_error(
      ENOENT, std::generic_category(),
      fmt::format("the broker that keeps a shared emulated machine is not there ({}): install cuvmm anew, name the "
                  "program in CUVMM_EMULATOR_BROKER, or set machine=private",
                  fmt::join(candidates, ", ")));
}

void start_broker(const broker::MachineDirectory& directory, const broker::Task& task,
                  std::chrono::steady_clock::time_point deadline) {
  const std::string program = broker_program();
  const FileDescriptor listener = listening(directory);
  const FileDescriptor given_listener = out_of_the_way(listener.get());
  const FileDescriptor given_directory = out_of_the_way(directory.descriptor());
  const SpawnSettings settings(given_listener.get(), given_directory.get());
  std::vector<std::string> words = broker::words_of(task);
  words.insert(words.begin(), program);
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t process = 0;
  const int error = ::posix_spawn(&process, program.c_str(), settings.actions(), settings.attributes(), pointers.data(),
                                  environment().data());
  if (error != 0) {
    ::unlinkat(directory.descriptor(), broker::socket_name, 0);
    throw std::system_error(error, std::generic_category(),
                            fmt::format("cannot start the broker of the emulated machine, '{}'", program));
  }
  if (const auto status = end_of(process, deadline)) {
    if (!WIFEXITED(*status) || WEXITSTATUS(*status) != broker::no_process_left) return;
    ::unlinkat(directory.descriptor(), broker::socket_name, 0);
    throw std::system_error(EAGAIN, std::generic_category(),
                            "the broker of the emulated machine cannot start the process that goes on");
  }
  ::kill(-process, SIGKILL);  // it has a session of its own
  ::waitpid(process, nullptr, 0);
  ::unlinkat(directory.descriptor(), broker::socket_name, 0);
  throw std::system_error(
      ETIMEDOUT, std::generic_category(),
      fmt::format(
          "the program '{}' was started as the broker of the emulated machine, to serve the socket '{}/{}', and "
          "does not behave as one: it neither ended nor left one behind in time (broker-patience); name another "
          "program in CUVMM_EMULATOR_BROKER, or none",
          program, directory.path(), broker::socket_name));
}

}  // namespace cuvmm::emulator::sharing
