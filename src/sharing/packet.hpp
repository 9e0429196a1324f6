// Packets, of which messages are made: a header, then a part of the message's bytes; descriptors lie beside it. Pure:
// no system calls but the closing of descriptors. docs/sharing.md tells the format.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuvmm/sharing/message.hpp"

namespace cuvmm::sharing {

inline constexpr std::uint16_t protocol_version = 1;
inline constexpr std::size_t packet_header_bytes = 40;
inline constexpr std::size_t most_packet_bytes = std::size_t{32} << 10;  // header included
inline constexpr std::size_t most_packet_content = most_packet_bytes - packet_header_bytes;
inline constexpr std::size_t most_packet_descriptors = 253;  // the kernel's SCM_MAX_FD

// The transport's own kinds of message.
inline constexpr MessageKind hello_kind = 1;
inline constexpr MessageKind welcome_kind = 2;
inline constexpr MessageKind failure_kind = 3;

struct PacketHeader {
  MessageKind kind = 0;
  std::uint32_t number = 0;  // of the message
  bool is_reply = false;
  std::uint32_t index = 0;  // of the packet in it, from 0
  bool last = false;
  std::uint64_t total_bytes = 0;  // of the message
  std::uint32_t total_descriptors = 0;
  std::uint32_t bytes = 0;  // of them in this packet
  std::uint32_t descriptors = 0;

  friend bool operator==(const PacketHeader&, const PacketHeader&) noexcept = default;
};

[[nodiscard]] std::vector<std::byte> encode(const PacketHeader& header);

// Puts messages together again out of packets, whoever sent them.
class MessageAssembler {
 public:
  explicit MessageAssembler(const MessageLimits& limits) noexcept : limits_(limits) {}

  // Takes the next packet; returns what is wrong with it, or nothing. After something wrong it is of no use any more. A
  // failure may come in place of the rest of a message that was begun.
  [[nodiscard]] std::optional<std::string> add(std::span<const std::byte> packet,
                                               std::vector<UniqueDescriptor> descriptors);

  [[nodiscard]] bool begun() const noexcept { return next_index_ != 0; }
  [[nodiscard]] bool complete() const noexcept { return complete_; }
  [[nodiscard]] Message take() noexcept { return std::move(message_); }

 private:
  [[nodiscard]] bool breaks_off(const PacketHeader& header) const noexcept;
  [[nodiscard]] std::optional<std::string> fault_in(const PacketHeader& header, std::size_t content,
                                                    std::size_t descriptors) const;

  MessageLimits limits_;
  Message message_;
  PacketHeader first_;
  std::uint32_t next_index_ = 0;
  bool complete_ = false;
};

}  // namespace cuvmm::sharing
