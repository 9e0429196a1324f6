#include "conformance/cases/second_process.hpp"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <stdexcept>

namespace cuvmm::conformance {

namespace {

// The other process sees how it went by what it receives.
[[noreturn]] void run(Environment own, const SecondProcess::Function& function, int socket) {
  try {
    if (!own.begin(Start::context)) function(own, socket);
  } catch (const std::exception&) {
    _exit(1);
  }
  for (;;) pause();
}

}  // namespace

SecondProcess::SecondProcess(const Environment& environment, const Function& function) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("socketpair failed");
  process_ = fork();
  if (process_ < 0) throw std::runtime_error("fork failed");
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    run(environment.another(), function, ends[1]);
  }
  close(ends[1]);
  socket_ = ends[0];
}

SecondProcess::~SecondProcess() {
  kill();
  close(socket_);
}

void SecondProcess::kill() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

void send_descriptor(int socket, int descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != 1) throw std::runtime_error("sendmsg failed");
}

int receive_descriptor(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

void pass_turn(int socket) {
  send_bytes(socket, "", 1);
}

void wait_for_turn(int socket) {
  char word = 0;
  if (!receive_bytes(socket, &word, sizeof word)) throw std::runtime_error("the other process is gone");
}

void send_bytes(int socket, const void* bytes, std::size_t size) {
  if (send(socket, bytes, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) throw std::runtime_error("send failed");
}

bool receive_bytes(int socket, void* bytes, std::size_t size) {
  return recv(socket, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

}  // namespace cuvmm::conformance
