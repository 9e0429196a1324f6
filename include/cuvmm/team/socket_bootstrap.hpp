// A bootstrap for the ranks of one node: Unix sockets between all of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuvmm/sharing/descriptor_socket.hpp"
#include "cuvmm/team/bootstrap.hpp"

namespace cuvmm::team {

// Which rank of which team.
struct SocketTeam {
  int rank = 0;
  int size = 1;
  // The same for all ranks of a team, and another one for each team of this user that is formed at the same time. Rank
  // 0 listens under a name made of it, in this user's private directory (SocketAddress::in_private_directory).
  std::string session{};

  // As torchrun and others tell: rank and size from RANK and WORLD_SIZE, the session from MASTER_ADDR and MASTER_PORT,
  // together with TORCHELASTIC_RUN_ID where that is set, unless one is given. Throws InvalidUse where one of them is
  // missing or is no number; NotSupported where LOCAL_WORLD_SIZE tells that some of the ranks are on other nodes.
  [[nodiscard]] static SocketTeam from_environment(std::string session = {});
};

// Every rank has a connection to every other one, so that each sees by itself who has not come and who has ended: of a
// rank that ends, however it does, all others learn at once, PeerGone, with its rank and process. A rank that gives up
// (its deadline passed, a protocol was violated) tells all others why, who then fail for the same reason, and the team
// is at an end; the same ranks can form a new one at once, with the same session.
//
// A rank that has left keeps nobody from finishing an operation that it took part in. Ranks may be processes of one
// user, or threads of a process. A process that was forked while it had the object must not use it; and as long as such
// a child lives, its parent's end is not seen.
class SocketBootstrap final : public Bootstrap {
 public:
  // Meets the other ranks, and returns when all have met. Throws TimedOut, which names the ranks that have not come;
  // PeerGone where one that had come has ended; InvalidUse where ranks disagree on the size, or two have the same
  // number; and as DescriptorListener::listen and DescriptorSocket::connect.
  [[nodiscard]] static std::unique_ptr<SocketBootstrap> join(const SocketTeam& team, const Deadline& deadline) {
    return try_join(team, deadline).value();
  }
  [[nodiscard]] static Result<std::unique_ptr<SocketBootstrap>> try_join(const SocketTeam& team,
                                                                         const Deadline& deadline);

  // One for each of `size` ranks that are threads of this process, in the order of ranks. Throws InvalidUse for a size
  // below 1, OutOfDescriptors.
  [[nodiscard]] static std::vector<std::unique_ptr<SocketBootstrap>> within_process(int size);

  SocketBootstrap(const SocketBootstrap&) = delete;
  SocketBootstrap& operator=(const SocketBootstrap&) = delete;
  SocketBootstrap(SocketBootstrap&&) = delete;
  SocketBootstrap& operator=(SocketBootstrap&&) = delete;
  // Leaves the team.
  ~SocketBootstrap() override;

  [[nodiscard]] int rank() const noexcept override;
  [[nodiscard]] int size() const noexcept override;

  // At most 64 MiB from a rank: InvalidUse for more.
  [[nodiscard]] Result<Contributions> try_allgather(std::string_view step, std::span<const std::byte> mine,
                                                    const Deadline& deadline) override;
  [[nodiscard]] Result<void> try_barrier(std::string_view step, const Deadline& deadline) override;

 private:
  class Impl;
  explicit SocketBootstrap(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm::team
