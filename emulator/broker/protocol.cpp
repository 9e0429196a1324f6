#include "emulator/broker/protocol.hpp"

#include <utility>

#include "emulator/broker/wire.hpp"

namespace cuvmm::emulator::broker {
namespace {

struct Header {
  std::uint32_t mark = 0x424d'5543;  // "CUMB"
  std::uint16_t version = protocol_version;
  std::uint16_t kind = 0;
  static void fields(auto& self, auto&& field) {
    field(self.mark);
    field(self.version);
    field(self.kind);
  }
};
constexpr std::size_t header_bytes = 8;

// Requests and replies are told apart by where their numbers begin, so that neither passes for the other.
constexpr std::uint16_t first_request = 1;
constexpr std::uint16_t first_reply = 0x101;

template <class Message>
std::vector<std::byte> encoded(const Message& message, std::uint16_t first) {
  Writer writer;
  Header header;
  header.kind = static_cast<std::uint16_t>(first + message.index());
  writer(header);
  std::visit([&](const auto& one) { writer(one); }, message);
  return writer.take();
}

template <class Message, std::size_t index = 0>
std::optional<Message> decoded_as(std::size_t kind, std::span<const std::byte> fields) {
  if constexpr (index == std::variant_size_v<Message>) {
    return std::nullopt;
  } else {
    if (kind != index) return decoded_as<Message, index + 1>(kind, fields);
    std::optional<Message> message(std::in_place, std::in_place_index<index>);
    Reader reader(fields);
    reader(*std::get_if<index>(&*message));
    if (!reader.complete()) message.reset();
    return message;
  }
}

std::optional<Header> header_of(std::span<const std::byte> bytes) {
  if (bytes.size() < header_bytes) return std::nullopt;
  Header header;
  Reader reader(bytes.first(header_bytes));
  reader(header);
  if (header.mark != Header().mark) return std::nullopt;
  return header;
}

template <class Message>
std::optional<Message> decoded(std::span<const std::byte> bytes, std::uint16_t first) {
  const auto header = header_of(bytes);
  if (!header || header->version != protocol_version || header->kind < first || bytes.size() > most_message_bytes)
    return std::nullopt;
  return decoded_as<Message>(static_cast<std::size_t>(header->kind - first), bytes.subspan(header_bytes));
}

}  // namespace

Properties::Properties(const abi::CUmemAllocationProp& from)
    : type(from.type),
      handle_types(from.requestedHandleTypes),
      location_type(from.location.type),
      location(from.location.id),
      compression(from.allocFlags.compressionType),
      rdma(from.allocFlags.gpuDirectRDMACapable),
      usage(from.allocFlags.usage) {}

abi::CUmemAllocationProp Properties::driver_form() const {
  abi::CUmemAllocationProp form{};
  form.type = static_cast<abi::CUmemAllocationType>(type);
  form.requestedHandleTypes = static_cast<abi::CUmemAllocationHandleType>(handle_types);
  form.location = {static_cast<abi::CUmemLocationType>(location_type), location};
  form.allocFlags.compressionType = compression;
  form.allocFlags.gpuDirectRDMACapable = rdma;
  form.allocFlags.usage = usage;
  return form;
}

std::vector<std::byte> encode(const Request& request) {
  return encoded(request, first_request);
}
std::vector<std::byte> encode(const Reply& reply) {
  return encoded(reply, first_reply);
}
std::optional<Request> decode_request(std::span<const std::byte> bytes) {
  return decoded<Request>(bytes, first_request);
}
std::optional<Reply> decode_reply(std::span<const std::byte> bytes) {
  return decoded<Reply>(bytes, first_reply);
}
std::optional<std::uint16_t> version_of(std::span<const std::byte> bytes) {
  const auto header = header_of(bytes);
  return header ? std::optional(header->version) : std::nullopt;
}

}  // namespace cuvmm::emulator::broker
