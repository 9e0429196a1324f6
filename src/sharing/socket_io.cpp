#include "sharing/socket_io.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sharing/packet.hpp"

namespace cuvmm::sharing {

namespace {

// Room for credentials, too, which an inherited socket may have been told to receive.
constexpr std::size_t control_bytes = CMSG_SPACE(most_packet_descriptors * sizeof(int)) + CMSG_SPACE(sizeof(ucred));

void take_descriptors(msghdr& header, std::vector<UniqueDescriptor>& taken) noexcept {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t index = 0; index < count; ++index) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(control) + index * sizeof descriptor, sizeof descriptor);
      taken.emplace_back(descriptor);  // there is room: it was reserved
    }
  }
}

}  // namespace

int send_now(int socket, std::span<const std::byte> header, std::span<const std::byte> bytes,
             std::span<const int> descriptors) noexcept {
  // sendmsg takes pointers to what it does not change.
  std::array<iovec, 2> data{iovec{const_cast<std::byte*>(header.data()), header.size()},
                            iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
  alignas(cmsghdr) std::array<char, control_bytes> control{};
  msghdr message{};
  message.msg_iov = data.data();
  message.msg_iovlen = data.size();
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = -1;
  do sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) return errno;
  return static_cast<std::size_t>(sent) == header.size() + bytes.size() ? 0 : EMSGSIZE;
}

ReceivedPacket receive_now(int socket) {
  ReceivedPacket packet;
  packet.bytes.reserve(most_packet_bytes);  // what needs memory comes before there is anything that could be lost
  packet.descriptors.reserve(most_packet_descriptors);
  std::array<std::byte, most_packet_bytes> room;  // NOLINT(*-member-init): the system fills it
  iovec data{room.data(), room.size()};
  alignas(cmsghdr) std::array<char, control_bytes> control{};
  msghdr message{};
  ssize_t count = -1;
  // Linux looks for a packet and then, having found none, for the end: what comes between the two is behind an end that
  // has been told already. Told twice, it is the end.
  bool told_of_the_end = false;
  do {
    message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    count = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while ((count < 0 && errno == EINTR) || (count == 0 && !std::exchange(told_of_the_end, true)));
  if (count < 0) {
    packet.error = errno;
    return packet;
  }
  take_descriptors(message, packet.descriptors);
  packet.bytes.assign(room.begin(), room.begin() + count);
  packet.ended = count == 0;
  packet.cut = (message.msg_flags & MSG_TRUNC) != 0;
  packet.descriptors_lost = (message.msg_flags & MSG_CTRUNC) != 0;
  return packet;
}

}  // namespace cuvmm::sharing
