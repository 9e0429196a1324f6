// No rank enters a step unless all have done the one before: agreement between ranks.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "cuvmm/sharing/locality.hpp"
#include "cuvmm/team/bootstrap.hpp"

namespace cuvmm::team {

// What each rank said of a step, in the order of ranks, the same on all of them: the bytes that it has for the others,
// or why it could not do the step.
struct Votes {
  struct Vote {
    Result<Bytes> said;
    std::string where{};  // "rank 2 (process 4242 on host 'one', node 0 of the emulated machine ...)"
  };
  std::string step{};
  std::vector<Vote> of_rank{};

  [[nodiscard]] bool unanimous() const noexcept;
  // For votes that are not unanimous: one failure that names each rank that refused, where it is, the step, and why. Of
  // the kind of the first refusal, and with its numbers. The same on all ranks.
  [[nodiscard]] Failure verdict() const;
};

// Tells all ranks what became of this rank's part of a step, and learns what became of theirs; collective. `where` is
// told of this rank where it refuses. It returns unanimous votes only once all ranks know of all votes.
//
// A refusal is no failure of this function: the team stays in step, may undo the step, and try it again. A Failure is:
// the bootstrap's, TimedOut with the ranks that are missing, or PeerGone. What that leaves open is told in
// docs/teams.md.
[[nodiscard]] Result<Votes> try_collect_votes(Bootstrap& bootstrap, std::string_view step, const Result<Bytes>& mine,
                                              const Deadline& deadline,
                                              const sharing::Locality& where = sharing::Locality::here());

// The same, for a step that all do or none: the bytes of all ranks if all have said some, and else the verdict.
[[nodiscard]] Result<Contributions> try_agree(Bootstrap& bootstrap, std::string_view step, const Result<Bytes>& mine,
                                              const Deadline& deadline,
                                              const sharing::Locality& where = sharing::Locality::here());

// The same without bytes: succeeds if all ranks pass a success.
[[nodiscard]] Result<void> try_vote(Bootstrap& bootstrap, std::string_view step, const Result<void>& mine,
                                    const Deadline& deadline,
                                    const sharing::Locality& where = sharing::Locality::here());
inline void vote(Bootstrap& bootstrap, std::string_view step, const Result<void>& mine, const Deadline& deadline,
                 const sharing::Locality& where = sharing::Locality::here()) {
  try_vote(bootstrap, step, mine, deadline, where).value();
}

}  // namespace cuvmm::team
