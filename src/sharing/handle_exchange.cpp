#include "cuvmm/sharing/handle_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "refusal.hpp"
#include "sharing/handles_message.hpp"
#include "sharing/locality_refusal.hpp"
#include "sharing/memory_size.hpp"
#include "sharing/outgoing.hpp"
#include "sharing/wire.hpp"
#include "windows_handles.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::string_view sending = "send_handles";
constexpr std::string_view receiving = "receive_handles";

Failure no_handles(std::string reason) {
  Failure failure;
  failure.kind = ErrorKind::protocol_violation;
  failure.call = receiving;
  failure.reason = std::move(reason);
  return failure;
}

HandleTypes types_of(std::uint32_t bits) noexcept {
  HandleTypes types;
  for (const HandleType each :
       {HandleType::posix_file_descriptor, HandleType::win32, HandleType::win32_kmt, HandleType::fabric})
    if ((bits & static_cast<unsigned>(each)) != 0) types = types | each;
  return types;
}

// The handle of that type which comes next, its descriptor taken out of those beside the message.
Result<ShareableHandle> next_handle(Reader& reader, std::span<UniqueDescriptor>& descriptors) {
  const auto type = reader.number<std::uint32_t>();
  if (reader.failed()) return no_handles("it ends within the size and type of a handle");
  if (type == static_cast<unsigned>(HandleType::posix_file_descriptor)) {
    if (descriptors.empty()) return no_handles("a descriptor is named that did not come with the message");
    UniqueDescriptor descriptor = std::move(descriptors.front());
    descriptors = descriptors.subspan(1);
    return ShareableHandle::adopt(std::move(descriptor));
  }
  if (type == static_cast<unsigned>(HandleType::fabric)) {
    FabricBytes bytes{};
    const auto raw = reader.raw(bytes.size());
    if (raw.empty()) return no_handles("it ends within a fabric handle");
    std::copy(raw.begin(), raw.end(), bytes.begin());
    return ShareableHandle::from_bytes(bytes);
  }
  if (auto refused = windows_handles_refused(receiving, types_of(type))) return *refused;
  return no_handles(fmt::format("there is no handle type {}", type));
}

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

Result<std::vector<HandleOfMemory>> handles_in(Message& message) try {
  if (message.kind != handles_message)
    return no_handles(fmt::format("a message of kind {} came instead of handles", message.kind));
  Reader reader(message.bytes);
  std::span<UniqueDescriptor> descriptors(message.descriptors);
  std::vector<HandleOfMemory> handles;
  while (reader.left() != 0) {
    const auto bytes = reader.number<std::uint64_t>();
    auto handle = next_handle(reader, descriptors);
    if (!handle) return handle.failure();
    if (bytes == 0) return no_handles("a handle has no size");
    if (bytes > most_bytes_of_memory) return no_handles(fmt::format("no memory has {} bytes", bytes));
    handles.push_back({std::move(handle).value(), static_cast<std::size_t>(bytes)});
  }
  if (reader.failed() || !descriptors.empty()) return no_handles("handles and descriptors do not match");
  return handles;
} catch (const Error& error) {  // of a descriptor that could not be moved
  return error.failure();
}

void send_handles(DescriptorSocket& socket, std::span<const HandleOfMemory> handles, const Deadline& deadline) {
  try_send_handles(socket, handles, deadline).value();
}

std::vector<HandleOfMemory> receive_handles(DescriptorSocket& socket, const Deadline& deadline) {
  return try_receive_handles(socket, deadline).value();
}

}  // namespace cuvmm::sharing
