// One packet of a socket, without waiting.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cuvmm/unique_descriptor.hpp"

namespace cuvmm::sharing {

// 0, or errno. All of the packet or nothing: sockets of type SOCK_SEQPACKET know no part of one.
[[nodiscard]] int send_now(int socket, std::span<const std::byte> header, std::span<const std::byte> bytes,
                           std::span<const int> descriptors) noexcept;

struct ReceivedPacket {
  int error = 0;  // errno
  bool ended = false;
  bool cut = false;               // it was larger than any packet is
  bool descriptors_lost = false;  // this process had no room for all of them
  std::vector<std::byte> bytes;
  std::vector<UniqueDescriptor> descriptors;  // close-on-exec
};

[[nodiscard]] ReceivedPacket receive_now(int socket);

}  // namespace cuvmm::sharing
