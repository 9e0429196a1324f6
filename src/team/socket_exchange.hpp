// One operation of a SocketBootstrap: this rank's bytes to all others, and theirs to this one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/team/bootstrap.hpp"
#include "team/peers.hpp"

namespace cuvmm::team {

inline constexpr std::size_t most_contribution_bytes = std::size_t{64} << 20;

struct Operation {
  std::string_view call{};  // for messages
  std::string_view step{};
  std::uint64_t number = 0;  // of the operations of the team
  int rank = 0;
  std::span<const std::byte> mine{};
  bool meeting = false;  // of ranks to which rank 0 has handed their connections out, if it has not ended before
};

// Sends and receives at once, in parts, so that no two ranks wait for room with each other, and waits in one place for
// all. What a rank sends behind its contribution is kept for the operation that it is for; but that it has given up
// counts at once, so that a rank which comes late does not pass alone.
class SocketExchange {
 public:
  SocketExchange(Peers& peers, const Operation& operation);

  // What all have given. The connections stay as they are after a failure.
  Result<Contributions> run(const sharing::Deadline& deadline);

 private:
  struct Progress {
    std::size_t sent = 0;      // bytes
    bool all_sent = false;     // or it takes no more, and what it has sent tells why
    bool received = false;     // all of it
    std::size_t expected = 0;  // bytes
    bool begun = false;
    bool ended = false;  // after it had done its part
  };

  [[nodiscard]] Failure failure(ErrorKind kind, std::string reason) const;
  [[nodiscard]] Failure told(Failure of_rank) const;
  [[nodiscard]] std::string name_of(std::size_t rank) const { return name_of_rank(rank, peers_[rank]->process); }
  [[nodiscard]] Failure others_are_missing() const;
  [[nodiscard]] Failure out_of_step(std::size_t rank, std::string_view theirs) const;

  void send_to(std::size_t rank);
  [[nodiscard]] Result<void> receive_from(std::size_t rank);
  [[nodiscard]] Result<bool> receive_one_from(std::size_t rank);
  [[nodiscard]] Result<void> take(std::size_t rank, const sharing::Message& message);
  // Whether the end of another rank's connection may be that of rank 0, which had yet to hand it over.
  [[nodiscard]] bool awaits_word_of_rank_0() const;
  [[nodiscard]] bool complete() const;
  [[nodiscard]] Result<void> wait(const sharing::Deadline& deadline) const;

  Peers& peers_;
  const Operation& operation_;
  std::vector<Progress> progress_;
  Contributions received_;
  std::optional<Failure> ended_silently_;  // the first end that rank 0 may have to do with
};

}  // namespace cuvmm::team
