// Packets as somebody else might write them.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "sharing/packet.hpp"

namespace cuvmm::sharing::test {

using Bytes = std::vector<std::byte>;

// A packet that is right: of one message, the only one unless changed.
inline Bytes packet_of(PacketHeader header, const Bytes& content = {}) {
  Bytes packet = encode(header);
  packet.insert(packet.end(), content.begin(), content.end());
  return packet;
}

inline PacketHeader only_packet(std::size_t bytes, std::uint32_t descriptors = 0) {
  PacketHeader header{.kind = first_free_kind, .last = true, .total_bytes = bytes};
  header.total_descriptors = header.descriptors = descriptors;
  header.bytes = static_cast<std::uint32_t>(bytes);
  return header;
}

// Sends it as it is. Whoever gets it may have hung up already, for what was sent before.
inline void send_raw(int socket, const Bytes& packet, const std::vector<int>& descriptors = {}) {
  Bytes copy = packet;
  iovec data{copy.data(), copy.size()};
  std::vector<std::max_align_t> control(1 + CMSG_SPACE(descriptors.size() * sizeof(int)) / sizeof(std::max_align_t));
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  EXPECT_TRUE(sent == static_cast<ssize_t>(copy.size()) || (sent == -1 && (errno == EPIPE || errno == ECONNRESET)))
      << sent << ", errno " << errno;
}

// What is wrong with a packet that is the first of its message; empty if nothing is.
inline std::string fault_in(const Bytes& packet, const MessageLimits& limits = {}) {
  MessageAssembler assembler(limits);
  return assembler.add(packet, {}).value_or("");
}

}  // namespace cuvmm::sharing::test
