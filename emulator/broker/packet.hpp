// Packets with at most one descriptor beside them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "emulator/memory/file_descriptor.hpp"

namespace cuvmm::emulator::broker {

struct Packet {
  enum class Fate : unsigned char {
    arrived,
    none_yet,   // of a socket that does not block
    malformed,  // larger than any message, or with more than one descriptor
    ended,      // the other side is gone
  };
  Fate fate = Fate::ended;
  std::vector<std::byte> bytes;
  memory::FileDescriptor descriptor;
  bool descriptor_lost = false;  // there was one, for which this process had no room
};

// Receives one packet without waiting. The descriptor is close-on-exec. Needs no memory where `room` has enough for the
// longest message.
[[nodiscard]] Packet receive_packet(int socket, std::vector<std::byte> room = {});

// Sends one packet without waiting, with the descriptor unless that is negative. 0, or errno.
[[nodiscard]] int send_packet(int socket, std::span<const std::byte> bytes, int descriptor) noexcept;

}  // namespace cuvmm::emulator::broker
