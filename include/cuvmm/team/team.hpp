// Ranks that know of each other: who they are, what they agree on, and handles of memory between them.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cuvmm/device.hpp"
#include "cuvmm/shared_physical_memory.hpp"
#include "cuvmm/sharing/handle_exchange.hpp"
#include "cuvmm/team/agreement.hpp"
#include "cuvmm/team/bootstrap.hpp"

namespace cuvmm::team {

// One rank, as all others know it.
struct Member {
  sharing::Locality place{};               // which node its driver's memory is on
  std::uint32_t process = 0;               // as it calls itself
  std::array<std::byte, 16> device{};      // its device's UUID
  std::optional<DeviceOrdinal> ordinal{};  // that device in this process, where it is visible here
};

// A handle of each rank's memory, in the order of ranks; none of this rank's own.
using HandlesOfRanks = std::vector<std::optional<sharing::HandleOfMemory>>;

// The ranks of a bootstrap, each with a device. A rank is a process, or one of several threads of a process, each with
// its own object. Those of one node have sockets to each other, on which descriptors go; fabric handles go by the
// bootstrap.
//
// All functions that take a deadline are collective: all ranks call the same ones in the same order. Each ends by its
// deadline. After TimedOut and PeerGone of the bootstrap the team is at an end: what is made of it can be destroyed,
// and a new one formed. After a refusal, which is the same on all ranks, nothing has changed and the team goes on.
//
// One thread at a time uses an object.
class Team {
 public:
  // Tells all ranks where this one is, and connects those of a node. Throws what a rank was refused, TimedOut,
  // PeerGone.
  [[nodiscard]] static std::shared_ptr<Team> assemble(std::unique_ptr<Bootstrap> bootstrap, const Device& device,
                                                      const Deadline& deadline) {
    return try_assemble(std::move(bootstrap), device, deadline).value();
  }
  [[nodiscard]] static Result<std::shared_ptr<Team>> try_assemble(std::unique_ptr<Bootstrap> bootstrap,
                                                                  const Device& device, const Deadline& deadline);

  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  Team(Team&&) = delete;
  Team& operator=(Team&&) = delete;
  ~Team();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const Device& device() const noexcept;
  [[nodiscard]] const std::vector<Member>& members() const noexcept;  // by rank
  [[nodiscard]] bool is_on_one_node() const noexcept;
  [[nodiscard]] Bootstrap& bootstrap() const noexcept;

  // As team::try_vote, team::try_agree and team::try_collect_votes.
  [[nodiscard]] Result<void> try_vote(std::string_view step, const Result<void>& mine, const Deadline& deadline);
  [[nodiscard]] Result<Contributions> try_agree(std::string_view step, const Result<Bytes>& mine,
                                                const Deadline& deadline);
  [[nodiscard]] Result<Votes> try_collect_votes(std::string_view step, const Result<Bytes>& mine,
                                                const Deadline& deadline);
  void vote(std::string_view step, const Result<void>& mine, const Deadline& deadline) {
    try_vote(step, mine, deadline).value();
  }

  // Gives each rank a handle of every other rank's memory: a descriptor within a node, a fabric handle between nodes
  // and where the memory has no descriptors. A rank that has no memory passes why, which is then what all are told.
  // NotSupported where a handle does not reach a rank, which is named, and both nodes.
  [[nodiscard]] Result<HandlesOfRanks> try_exchange_handles(std::string_view step,
                                                            const Result<SharedPhysicalMemory>& mine,
                                                            const Deadline& deadline);
  // The same of the memory of one rank: none on that rank. What others pass is not looked at.
  [[nodiscard]] Result<std::optional<sharing::HandleOfMemory>> try_broadcast_handle(
      std::string_view step, int root, const Result<SharedPhysicalMemory>& mine, const Deadline& deadline);

  // The memory of a rank, from its handle, as this process sees it.
  [[nodiscard]] Result<SharedPhysicalMemory> try_import(int rank, const sharing::HandleOfMemory& handle) const;

 private:
  class Impl;
  explicit Team(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm::team
