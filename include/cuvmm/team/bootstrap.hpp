// How the ranks of a team find together: two operations over bytes, which is all that the rest is built on.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "cuvmm/result.hpp"
#include "cuvmm/sharing/deadline.hpp"

namespace cuvmm::team {

using sharing::Deadline;

using Bytes = std::vector<std::byte>;
// What each rank has given, in the order of ranks.
using Contributions = std::vector<Bytes>;

// The connection of one rank to all others, with which it forms a team of `size` ranks numbered from 0. Both operations
// are collective: all ranks call the same ones in the same order, whatever they found before.
//
// The library has SocketBootstrap for the ranks of one node and MpiBootstrap for any number of nodes. A program with a
// key-value store, or another launcher, derives its own. Of that is asked:
//
// - No wait is longer than the deadline allows. Where ranks have not come until then the failure is TimedOut, and its
//   reason names as many of them as are known.
// - If it can be known that a rank has ended, the failure is PeerGone and names the rank.
// - After a failure of its own every later call fails, too: ranks that went on would no longer be in step.
// - `step` is for messages. Contributions may differ in length, and may be empty.
//
// The try_ functions do not throw but for std::bad_alloc. One thread at a time uses an object.
class Bootstrap {
 public:
  Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  Bootstrap(Bootstrap&&) = delete;
  Bootstrap& operator=(Bootstrap&&) = delete;
  virtual ~Bootstrap() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  // What every rank has given, on every rank.
  [[nodiscard]] virtual Result<Contributions> try_allgather(std::string_view step, std::span<const std::byte> mine,
                                                            const Deadline& deadline) = 0;
  // Returns when every rank has called it.
  [[nodiscard]] virtual Result<void> try_barrier(std::string_view step, const Deadline& deadline) = 0;

  // The same, with the failure thrown.
  [[nodiscard]] Contributions allgather(std::string_view step, std::span<const std::byte> mine,
                                        const Deadline& deadline) {
    return try_allgather(step, mine, deadline).value();
  }
  void barrier(std::string_view step, const Deadline& deadline) { try_barrier(step, deadline).value(); }
};

}  // namespace cuvmm::team
