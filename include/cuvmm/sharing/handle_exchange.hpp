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

// A handle to the memory that means something to the process at the other end: a descriptor within a node; a fabric
// handle between nodes, and where the memory has no descriptors. It rests on what the other end told of itself when the
// connection was made, which names nodes if ConnectionOptions::locality is Locality::of(driver). Throws NotSupported,
// which names both nodes, where the memory has no handle that reaches there, and as ShareableHandle::export_from.
[[nodiscard]] ShareableHandle export_for(const DescriptorSocket& socket, const PhysicalMemory& memory);
[[nodiscard]] Result<ShareableHandle> try_export_for(const DescriptorSocket& socket, const PhysicalMemory& memory);

// Sends handles of any types, any number of them, in one message. They stay the caller's, who may close them and end as
// soon as this returns: descriptors on their way keep their memory. Throws NotSupported for descriptors where both ends
// have told that they are on different nodes, or on different machines for any handle, and as DescriptorSocket::send.
void send_handles(DescriptorSocket& socket, std::span<const HandleOfMemory> handles, const Deadline& deadline);
[[nodiscard]] Result<void> try_send_handles(DescriptorSocket& socket, std::span<const HandleOfMemory> handles,
                                            const Deadline& deadline);

// The handles that the peer sends, in that order. Throws as DescriptorSocket::receive; ProtocolViolation for another
// message, which ends the connection; NotSupported for handles of a type that this system has not, which does not.
[[nodiscard]] std::vector<HandleOfMemory> receive_handles(DescriptorSocket& socket, const Deadline& deadline);
[[nodiscard]] Result<std::vector<HandleOfMemory>> try_receive_handles(DescriptorSocket& socket,
                                                                      const Deadline& deadline);

}  // namespace cuvmm::sharing
