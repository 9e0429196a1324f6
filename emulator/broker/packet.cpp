#include "emulator/broker/packet.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "emulator/broker/protocol.hpp"

namespace cuvmm::emulator::broker {
namespace {

// Takes over the descriptors beside a message; more than one are closed.
void take_descriptors(msghdr& header, Packet& packet) {
  std::size_t taken = 0;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t index = 0; index < count; ++index) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(control) + index * sizeof(int), sizeof descriptor);
      memory::FileDescriptor one(descriptor);
      if (++taken == 1) packet.descriptor = std::move(one);
    }
  }
  if (taken <= 1) return;
  packet.fate = Packet::Fate::malformed;
  packet.descriptor = memory::FileDescriptor();
}

}  // namespace

Packet receive_packet(int socket, std::vector<std::byte> room) {
  Packet packet;
  packet.bytes = std::move(room);
  packet.bytes.resize(most_message_bytes);
  iovec data{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr header{};
  ssize_t count = -1;
  // What came while Linux looked first for a packet and then for the end is behind an end that it tells: only told
  // twice, it is the end.
  bool told_of_the_end = false;
  do {
    header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    count = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while ((count < 0 && errno == EINTR) || (count == 0 && !std::exchange(told_of_the_end, true)));
  if (count < 0) {
    const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOMEM || errno == ENOBUFS;
    packet.fate = later ? Packet::Fate::none_yet : Packet::Fate::ended;
    return packet;
  }
  packet.fate = count == 0 ? Packet::Fate::ended : Packet::Fate::arrived;
  packet.bytes.resize(static_cast<std::size_t>(count));
  packet.descriptor_lost = (header.msg_flags & MSG_CTRUNC) != 0;
  take_descriptors(header, packet);
  if (count > 0 && (header.msg_flags & MSG_TRUNC) != 0) packet.fate = Packet::Fate::malformed;
  return packet;
}

int send_packet(int socket, std::span<const std::byte> bytes, int descriptor) noexcept {
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
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
  ssize_t count = -1;
  do count = ::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (count < 0 && errno == EINTR);
  return count < 0 ? errno : 0;
}

}  // namespace cuvmm::emulator::broker
