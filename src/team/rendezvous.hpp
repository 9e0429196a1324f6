// How ranks of one node get their connections to each other.
#pragma once

#include <string>

#include "cuvmm/sharing/socket_address.hpp"
#include "team/peers.hpp"

namespace cuvmm::team {

struct MeetingPlace {
  sharing::SocketAddress address;  // where rank 0 listens
  std::string token;               // that all ranks know
  int rank = 0;
  int size = 1;
};

// A connection to every other rank. Rank 0 listens until all have come, then sends each two of the others a connection
// to each other, so that no one else has to listen. The caller's first operation shows that all have all.
[[nodiscard]] Result<Peers> try_meet(const MeetingPlace& place, const sharing::Deadline& deadline);

}  // namespace cuvmm::team
