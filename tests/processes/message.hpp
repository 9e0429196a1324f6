// Texts, each perhaps with a descriptor, between a test and its actors.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "emulator/memory/file_descriptor.hpp"

namespace cuvmm::tests {

struct Message {
  std::string text;
  emulator::memory::FileDescriptor descriptor;
};

inline bool send_message(int socket, const std::string& text, int descriptor = -1) {
  std::string copy = text;
  iovec data{copy.data(), copy.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// Nothing if the other side is gone.
inline std::optional<Message> receive_message(int socket) {
  char text[4096];
  iovec data{text, sizeof text};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t count = -1;
  do count = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  while (count < 0 && errno == EINTR);
  if (count <= 0) return std::nullopt;
  Message message{std::string(text, static_cast<std::size_t>(count)), {}};
  if (const cmsghdr* const rights = CMSG_FIRSTHDR(&header); rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    message.descriptor = emulator::memory::FileDescriptor(descriptor);
  }
  return message;
}

}  // namespace cuvmm::tests
