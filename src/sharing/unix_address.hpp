// A socket address as the system takes it.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include "cuvmm/sharing/socket_address.hpp"

namespace cuvmm::sharing {

struct UnixAddress {
  sockaddr_un content{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* pointer() const noexcept { return reinterpret_cast<const sockaddr*>(&content); }
};

[[nodiscard]] UnixAddress unix_address(const SocketAddress& address);

}  // namespace cuvmm::sharing
