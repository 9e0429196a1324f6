// The other ranks of a team, each at the end of a connection, and what they say to each other.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/sharing/descriptor_socket.hpp"

namespace cuvmm::team {

// Far from the kinds that programs count from 16, and beside those of ranges.
inline constexpr sharing::MessageKind join_message = 0xffe0;          // who has come, to rank 0
inline constexpr sharing::MessageKind missing_message = 0xffe1;       // which ranks have not come, from rank 0
inline constexpr sharing::MessageKind connection_message = 0xffe2;    // from rank 0, with a connection to another rank
inline constexpr sharing::MessageKind begin_anew_message = 0xffe3;    // from rank 0, which is at the end of an attempt
inline constexpr sharing::MessageKind contribution_message = 0xffe4;  // a part of it
inline constexpr sharing::MessageKind given_up_message = 0xffe5;      // the last word, with a failure

inline constexpr sharing::MessageKind memory_message = 0xffe6;  // a descriptor, within a node

// Each message is one packet, which is sent as a whole or not at all.
inline constexpr std::size_t most_part_bytes = 16'000;
inline constexpr std::size_t most_step_bytes = 255;
inline constexpr sharing::MessageLimits team_message_limits{.bytes = 32'000, .descriptors = 1};

struct Peer {
  sharing::DescriptorSocket socket;
  std::uint32_t process = 0;             // as it says itself
  std::deque<sharing::Message> ahead{};  // for the operations to come, which it is in already
};
// By rank; none for this one.
using Peers = std::vector<std::optional<Peer>>;

// "rank 3 (process 4242)"
[[nodiscard]] std::string name_of_rank(std::size_t rank, std::uint32_t process);

// What this process calls itself.
[[nodiscard]] std::uint32_t own_process() noexcept;

// The last word of a rank: in which operation of the team it failed, 0 before the first, and why.
struct LastWord {
  std::uint64_t operation = 0;
  Failure why;
};
[[nodiscard]] LastWord last_word_in(const sharing::Message& given_up);

// Tells all why, as the last thing that they hear, and closes the connections.
void give_up(Peers& peers, const Failure& why, std::uint64_t operation = 0) noexcept;
// The same to one.
void give_up(sharing::DescriptorSocket& socket, const Failure& why, std::uint64_t operation = 0) noexcept;

// What a rank failed with that has told why it gave up: the same, and who told.
[[nodiscard]] Failure failure_told_by(std::string_view rank, const sharing::Message& given_up);

// Of a rank that has ended, or breaks the protocol: what the connection failed with, told of the rank.
[[nodiscard]] Failure failure_of_rank(std::string_view rank, const Failure& of_connection);

[[nodiscard]] inline sharing::Deadline at_once() {
  return sharing::Deadline::at(sharing::Deadline::Clock::now());
}

// Whether a connection's failure says no more than that there is nothing to read, or no room to write, now.
[[nodiscard]] inline bool would_wait(const sharing::DescriptorSocket& socket, const Failure& failure) noexcept {
  return failure.kind == ErrorKind::timed_out && socket.descriptor() >= 0;
}

}  // namespace cuvmm::team
