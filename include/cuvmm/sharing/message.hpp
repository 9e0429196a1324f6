// What goes through a DescriptorSocket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuvmm/unique_descriptor.hpp"

namespace cuvmm::sharing {

// What a message is about. Kinds below `first_free_kind` belong to the transport, and 0xffff to send_handles.
using MessageKind = std::uint16_t;
inline constexpr MessageKind first_free_kind = 16;

// A message that was received, with the descriptors that came with it: close-on-exec, owned, above 2.
struct Message {
  MessageKind kind = 0;
  std::uint32_t number = 0;  // that its sender gave it; a reply bears that of its request
  bool is_reply = false;
  std::vector<std::byte> bytes{};
  std::vector<UniqueDescriptor> descriptors{};
};

// A message to be sent. Bytes and descriptors stay the caller's.
struct MessageView {
  MessageKind kind = 0;
  std::span<const std::byte> bytes{};
  std::span<const int> descriptors{};
};

// What is accepted of another process in one message; more is a protocol violation.
struct MessageLimits {
  std::size_t bytes = std::size_t{16} << 20;
  std::size_t descriptors = 65'536;
};

}  // namespace cuvmm::sharing
