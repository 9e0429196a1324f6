#include "sharing/packet.hpp"

#include <fmt/format.h>

#include <iterator>

#include "sharing/wire.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::uint32_t mark = 0x68537663;  // "cvSh"
constexpr std::uint32_t last_flag = 1;
constexpr std::uint32_t reply_flag = 2;

// The header, or what is wrong with it by itself.
std::optional<std::string> decode(Reader& reader, PacketHeader& header) {
  if (reader.number<std::uint32_t>() != mark) return "it does not begin with the mark of a packet";
  const auto version = reader.number<std::uint16_t>();
  if (version != protocol_version)
    return fmt::format(
        "it is of protocol version {}, and this library speaks version {}: both programs need the same "
        "version of cuvmm",
        version, protocol_version);
  header.kind = reader.number<std::uint16_t>();
  header.number = reader.number<std::uint32_t>();
  header.index = reader.number<std::uint32_t>();
  const auto flags = reader.number<std::uint32_t>();
  header.last = (flags & last_flag) != 0;
  header.is_reply = (flags & reply_flag) != 0;
  header.total_bytes = reader.number<std::uint64_t>();
  header.total_descriptors = reader.number<std::uint32_t>();
  header.bytes = reader.number<std::uint32_t>();
  header.descriptors = reader.number<std::uint32_t>();
  if (reader.failed()) return fmt::format("it is shorter than its header of {} bytes", packet_header_bytes);
  if ((flags & ~(last_flag | reply_flag)) != 0) return fmt::format("it has flags that do not exist: {:#x}", flags);
  return std::nullopt;
}

}  // namespace

std::vector<std::byte> encode(const PacketHeader& header) {
  Writer writer;
  writer.number(mark).number(protocol_version).number(header.kind).number(header.number).number(header.index);
  writer.number((header.last ? last_flag : 0U) | (header.is_reply ? reply_flag : 0U)).number(header.total_bytes);
  writer.number(header.total_descriptors).number(header.bytes).number(header.descriptors);
  return writer.take();
}

// Whoever gives up in the middle of a message tells why, in a message of one packet that answers nothing.
bool MessageAssembler::breaks_off(const PacketHeader& header) const noexcept {
  return begun() && header.kind == failure_kind && header.index == 0 && header.last && !header.is_reply;
}

std::optional<std::string> MessageAssembler::fault_in(const PacketHeader& header, std::size_t content,
                                                      std::size_t descriptors) const {
  if (header.bytes != content)
    return fmt::format("it says that it holds {} bytes, and holds {}", header.bytes, content);
  if (descriptors < header.descriptors)
    return fmt::format("{} descriptors were sent with it and {} arrived: something on the way does not carry them",
                       header.descriptors, descriptors);
  if (descriptors > header.descriptors)
    return fmt::format("{} descriptors came with it, and it says {}", descriptors, header.descriptors);
  if (header.index != next_index_)
    return fmt::format("it is packet {} of its message, and packet {} was due", header.index, next_index_);
  if (header.total_bytes > limits_.bytes || header.total_descriptors > limits_.descriptors)
    return fmt::format("it announces {} bytes and {} descriptors, more than the {} and {} that are allowed",
                       header.total_bytes, header.total_descriptors, limits_.bytes, limits_.descriptors);
  const PacketHeader& first = next_index_ == 0 ? header : first_;
  if (header.kind != first.kind || header.number != first.number || header.is_reply != first.is_reply ||
      header.total_bytes != first.total_bytes || header.total_descriptors != first.total_descriptors)
    return "it is not of the message that was begun";
  const std::uint64_t bytes = message_.bytes.size() + content;
  const std::uint64_t all_descriptors = message_.descriptors.size() + descriptors;
  if (bytes > header.total_bytes || all_descriptors > header.total_descriptors)
    return "its message has more than was announced";
  const bool all = bytes == header.total_bytes && all_descriptors == header.total_descriptors;
  if (header.last != all) return header.last ? "its message ends too early" : "its message goes on beyond its end";
  if (!header.last && content == 0 && descriptors == 0) return "it is empty";
  return std::nullopt;
}

std::optional<std::string> MessageAssembler::add(std::span<const std::byte> packet,
                                                 std::vector<UniqueDescriptor> descriptors) {
  Reader reader(packet);
  PacketHeader header;
  if (auto fault = decode(reader, header)) return fault;
  if (breaks_off(header)) {
    message_ = {};
    next_index_ = 0;
  }
  const auto content = reader.raw(reader.left());
  if (auto fault = fault_in(header, content.size(), descriptors.size())) return fault;
  if (next_index_++ == 0) {
    first_ = header;
    message_.kind = header.kind;
    message_.number = header.number;
    message_.is_reply = header.is_reply;
  }
  message_.bytes.insert(message_.bytes.end(), content.begin(), content.end());
  message_.descriptors.insert(message_.descriptors.end(), std::make_move_iterator(descriptors.begin()),
                              std::make_move_iterator(descriptors.end()));
  complete_ = header.last;
  return std::nullopt;
}

}  // namespace cuvmm::sharing
