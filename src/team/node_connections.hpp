// Descriptors between the ranks of a node.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cuvmm/sharing/handle_exchange.hpp"
#include "cuvmm/team/agreement.hpp"
#include "team/peers.hpp"

namespace cuvmm::team {

// Where the first rank of a node waits for the others, as it has told all: a name that nobody can guess.
[[nodiscard]] std::string new_meeting_name();

class NodeConnections {
 public:
  // `ranks`: those of this node, this one among them, in ascending order.
  [[nodiscard]] static Result<NodeConnections> meet(const std::string& name, const std::vector<int>& ranks, int rank,
                                                    const sharing::Deadline& deadline);
  NodeConnections() = default;

  // A descriptor of `bytes` bytes of memory to another rank of the node, in that exchange. It waits for nobody who
  // takes part in the exchanges.
  [[nodiscard]] Result<void> send(int to, std::uint64_t exchange, const sharing::HandleOfMemory& handle,
                                  const sharing::Deadline& deadline);
  // The one that the other rank sends in that exchange; those of earlier ones, which were broken off, are passed over.
  [[nodiscard]] Result<sharing::HandleOfMemory> receive(int from, std::uint64_t exchange,
                                                        const sharing::Deadline& deadline);

  // Why a connection has ended, where one has: no more exchange is possible then.
  [[nodiscard]] const std::optional<Failure>& ended() const noexcept { return ended_; }

 private:
  [[nodiscard]] Failure told(int rank, const Failure& of_connection);
  [[nodiscard]] Peer& peer(int rank) { return *peers_[place_of_rank_.at(rank)]; }

  std::map<int, std::size_t> place_of_rank_;
  Peers peers_;  // by place among the ranks of the node
  std::optional<Failure> ended_;
};

}  // namespace cuvmm::team
