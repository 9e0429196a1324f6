#include "kill_point.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>
#include <cstring>
#include <mutex>
#include <optional>

namespace cuvmm::tests {

namespace {

struct Armed {
  std::mutex mutex;
  std::optional<KillPoint> point;
  pid_t victim = 0;
  int passed = 0;
};

Armed& armed() {
  static Armed one;
  return one;
}

}  // namespace

void arm(const KillPoint& point, pid_t victim) {
  const std::lock_guard lock(armed().mutex);
  armed().point = point;
  armed().victim = victim;
  armed().passed = 0;
}

void pass(const std::string& step, bool before) {
  Armed& one = armed();
  const std::lock_guard lock(one.mutex);
  if (!one.point || one.point->step != step || one.point->before != before || ++one.passed != one.point->time) return;
  one.point.reset();
  ::kill(one.victim, SIGKILL);
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
