#include "cuvmm/sharing/handle_exchange.hpp"

#include "refusal.hpp"
#include "sharing/handles_message.hpp"
#include "sharing/locality_refusal.hpp"
#include "sharing/memory_size.hpp"
#include "sharing/outgoing.hpp"
#include "sharing/wire.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::string_view sending = "send_handles";

Failure not_reaching(std::string_view call, const Locality& here, const Locality& there) {
  return different_hosts(call, "This process", here, "its peer", there);
}

// Whether that handle means anything at the other end, as far as both ends have told where they are.
Result<void> require_reach(HandleType type, const std::optional<Locality>& here, const std::optional<Locality>& there) {
  if (!here || !there || same_node(*here, *there)) return {};
  if (type == HandleType::fabric && same_machine(*here, *there)) return {};
  return not_reaching(sending, *here, *there);
}

}  // namespace

Result<ShareableHandle> try_export_for(const DescriptorSocket& socket, const PhysicalMemory& memory) {
  constexpr std::string_view call = "export_for";
  if (memory.size() == 0) return owns_nothing(call, "memory");
  const HandleTypes types = memory.properties().handle_types;
  const Locality here = Locality::of(memory.driver());
  const auto& there = socket.peer_locality();
  if (there && !same_machine(here, *there)) return not_reaching(call, here, *there);
  const bool within_node = !there || same_node(here, *there);
  if (within_node && (types.contains(HandleType::posix_file_descriptor) || !types.contains(HandleType::fabric)))
    return ShareableHandle::try_export_from(memory, HandleType::posix_file_descriptor);
  if (!types.contains(HandleType::fabric)) return not_reaching(call, here, *there);
  return ShareableHandle::try_export_from(memory, HandleType::fabric);
}

ShareableHandle export_for(const DescriptorSocket& socket, const PhysicalMemory& memory) {
  return try_export_for(socket, memory).value();
}

Result<void> try_send_handles(DescriptorSocket& socket, std::span<const HandleOfMemory> handles,
                              const Deadline& deadline) {
  Writer writer;
  std::vector<int> descriptors;
  for (const HandleOfMemory& each : handles) {
    if (auto sound = require_size_of_memory(sending, each.bytes, "Pass PhysicalMemory::size() with the handle"); !sound)
      return sound;
    if (auto reaches = require_reach(each.handle.type(), socket.locality_, socket.peer_locality_); !reaches)
      return reaches;
    writer.number(std::uint64_t{each.bytes}).number(static_cast<std::uint32_t>(each.handle.type()));
    if (each.handle.type() == HandleType::fabric)
      writer.raw(each.handle.fabric_bytes());
    else
      descriptors.push_back(each.handle.descriptor());
  }
  const auto bytes = writer.take();
  const MessageView message{.kind = handles_message, .bytes = bytes, .descriptors = descriptors};
  if (auto allowed = socket.check_limits(sending, message); !allowed) return allowed;
  return socket.send_message({sending, message, ++socket.last_number_}, deadline);
}

Result<std::vector<HandleOfMemory>> try_receive_handles(DescriptorSocket& socket, const Deadline& deadline) {
  auto message = socket.try_receive(deadline);
  if (!message) return message.failure();
  auto handles = handles_in(*message);
  if (!handles && handles.failure().kind == ErrorKind::protocol_violation) return socket.give_up(handles.failure());
  return handles;
}

void send_handles(DescriptorSocket& socket, std::span<const HandleOfMemory> handles, const Deadline& deadline) {
  try_send_handles(socket, handles, deadline).value();
}

std::vector<HandleOfMemory> receive_handles(DescriptorSocket& socket, const Deadline& deadline) {
  return try_receive_handles(socket, deadline).value();
}

}  // namespace cuvmm::sharing
