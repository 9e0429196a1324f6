// What is inside a DescriptorSocket beyond what its header shows.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuvmm/sharing/descriptor_socket.hpp"

namespace cuvmm::sharing {

// A message with all that its packets say of it.
struct DescriptorSocket::Outgoing {
  std::string_view call;
  MessageView content;
  std::uint32_t number = 0;
  bool is_reply = false;
  std::uint32_t first_awaited = 0;  // of earlier requests whose replies are still to come; 0 for none
};

// How long somebody listens: until the deadline, and then to what lies in the socket, so that a deadline of now asks
// for that. The system holds fewer packets than are taken late; what is more, the peer sent after the deadline.
struct DescriptorSocket::Patience {
  Deadline deadline;
  int late_packets = 0;
  static constexpr int most_late_packets = 1024;

  [[nodiscard]] bool ends_before_next_packet() { return deadline.passed() && ++late_packets > most_late_packets; }
};

// Refuses a token and a locality that the other end would not take.
[[nodiscard]] Result<void> require_sound(std::string_view call, const ConnectionOptions& options);

// With what the other end is told. It takes a descriptor to learn that, without which this would seem another host.
[[nodiscard]] ConnectionOptions with_locality(ConnectionOptions options);

// Of those who have not said yet who they are.
inline constexpr MessageLimits introduction_limits{.bytes = std::size_t{16} << 10, .descriptors = 0};

}  // namespace cuvmm::sharing
