// Handles handed over once, for programs that need no more than that.
#pragma once

#include <span>
#include <vector>

#include "cuvmm/sharing/descriptor_socket.hpp"
#include "cuvmm/sharing/shareable_handle.hpp"

namespace cuvmm::sharing {

// A handle and what its importer has to know.
struct HandleOfMemory {
  ShareableHandle handle;
  std::size_t bytes = 0;  // PhysicalMemory::size()
};

// Sends handles of any types, any number of them, in one message. They stay the caller's, who may close them and end as
// soon as this returns: descriptors on their way keep their memory. Throws as DescriptorSocket::send.
void send_handles(DescriptorSocket& socket, std::span<const HandleOfMemory> handles, const Deadline& deadline);
[[nodiscard]] Result<void> try_send_handles(DescriptorSocket& socket, std::span<const HandleOfMemory> handles,
                                            const Deadline& deadline);

// The handles that the peer sends, in that order. Throws as DescriptorSocket::receive; ProtocolViolation for another
// message, which ends the connection; NotSupported for handles of a type that this system has not, which does not.
[[nodiscard]] std::vector<HandleOfMemory> receive_handles(DescriptorSocket& socket, const Deadline& deadline);
[[nodiscard]] Result<std::vector<HandleOfMemory>> try_receive_handles(DescriptorSocket& socket,
                                                                      const Deadline& deadline);

}  // namespace cuvmm::sharing
