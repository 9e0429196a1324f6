#include "kill_point.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

namespace cuvmm::tests {

namespace {

struct Armed {
  std::mutex mutex;
  std::optional<KillPoint> point;
  pid_t victim = 0;
  int begun = 0;
  bool is_due = false;  // the step has begun, and the victim is to be killed after it
};

Armed& armed() {
  static Armed one;
  return one;
}

// Whether every thread of the process is stopped, or gone.
bool stands_still(pid_t process) {
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    std::string line;
    std::getline(std::ifstream(thread.path() / "stat"), line);
    const std::size_t name_end = line.rfind(')');
    if (name_end != std::string::npos && std::strchr("TtZX", line.at(name_end + 2)) == nullptr) return false;
  }
  return true;
}

// Another process does not get on from now on. One that is told of the step could come to its end before it is killed.
void hold(pid_t victim) {
  if (victim == ::getpid()) return;
  ::kill(victim, SIGSTOP);
  while (!stands_still(victim)) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void kill_victim(Armed& one) {
  one.point.reset();
  ::kill(one.victim, SIGKILL);
}

}  // namespace

void arm(const KillPoint& point, pid_t victim) {
  if (victim <= 0) throw std::invalid_argument("no process is to be killed");
  const std::lock_guard lock(armed().mutex);
  armed().point = point;
  armed().victim = victim;
  armed().begun = 0;
  armed().is_due = false;
}

void pass(const std::string& step, bool before) {
  Armed& one = armed();
  const std::lock_guard lock(one.mutex);
  if (!one.point || one.point->step != step) return;
  if (!before) {
    if (one.is_due) kill_victim(one);
  } else if (++one.begun == one.point->time) {
    if (one.point->before) return kill_victim(one);
    one.is_due = true;
    hold(one.victim);
  }
}

namespace {

// What a packet of the library's is; empty for those of others.
std::string kind_of(const msghdr* message) {
  constexpr char mark[] = {'c', 'v', 'S', 'h'};
  if (message->msg_iovlen == 0 || message->msg_iov[0].iov_len < 8 ||
      std::memcmp(message->msg_iov[0].iov_base, mark, sizeof mark) != 0)
    return {};
  const auto* const bytes = static_cast<const unsigned char*>(message->msg_iov[0].iov_base);
  return fmt::format("send {:#x}", bytes[6] + 256 * bytes[7]);
}

// Whether it is the address of a publisher of the tests, not the machine's.
bool is_ours(const sockaddr* address) {
  return address->sa_family == AF_UNIX &&
         std::strstr(reinterpret_cast<const sockaddr_un*>(address)->sun_path, "/published/") != nullptr;
}

template <class Call>
auto watched(const std::string& step, Call&& call) {
  if (!step.empty()) pass(step, true);
  const auto result = call();
  const int error = errno;
  if (!step.empty()) pass(step, false);
  errno = error;
  return result;
}

}  // namespace

}  // namespace cuvmm::tests

// The linker sends the calls of the library here (--wrap).
extern "C" {
ssize_t __real_sendmsg(int socket, const msghdr* message, int flags);
int __real_listen(int socket, int backlog);
int __real_connect(int socket, const sockaddr* address, socklen_t size);

ssize_t __wrap_sendmsg(int socket, const msghdr* message, int flags) {
  return cuvmm::tests::watched(cuvmm::tests::kind_of(message), [&] { return __real_sendmsg(socket, message, flags); });
}
int __wrap_listen(int socket, int backlog) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  const bool ours = cuvmm::tests::is_ours(reinterpret_cast<const sockaddr*>(&address));
  return cuvmm::tests::watched(ours ? "listen" : "", [&] { return __real_listen(socket, backlog); });
}
int __wrap_connect(int socket, const sockaddr* address, socklen_t size) {
  return cuvmm::tests::watched(cuvmm::tests::is_ours(address) ? "connect" : "",
                               [&] { return __real_connect(socket, address, size); });
}
}
