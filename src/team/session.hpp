// Where the ranks of a session meet.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "cuvmm/sharing/socket_address.hpp"

namespace cuvmm::team {

// Sessions have any name, and sockets a short one. Two sessions with the same address, should there ever be any, are
// told apart by their token.
[[nodiscard]] inline sharing::SocketAddress address_of_session(std::string_view session) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char each : session) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return sharing::SocketAddress::in_private_directory(fmt::format("team-{:016x}", hash));
}

}  // namespace cuvmm::team
