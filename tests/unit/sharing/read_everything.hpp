// Reads bytes as each thing that another process may send.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sharing/content.hpp"
#include "sharing/handles_message.hpp"
#include "sharing/packet.hpp"
#include "sharing/range_messages.hpp"

namespace cuvmm::sharing::test {

// Descriptors as they might lie beside a message.
inline std::vector<UniqueDescriptor> some_descriptors(std::size_t count) {
  std::vector<UniqueDescriptor> descriptors;
  for (std::size_t index = 0; index < count; ++index) descriptors.emplace_back(::open("/dev/null", O_RDWR | O_CLOEXEC));
  return descriptors;
}

// What is read as something is written as the same bytes again: nothing is taken for two things, and nothing is passed
// over.
template <class Decoded>
bool is_written_as(const std::optional<Decoded>& decoded, std::span<const std::byte> bytes) {
  return !decoded || std::ranges::equal(encode(*decoded), bytes);
}

// What the messages of shared ranges are read as: nothing that could not be.
inline bool read_range_messages_in(std::span<const std::byte> bytes) {
  const auto request = decode_attach_request(bytes);
  const auto standing = decode_standing(bytes);
  const auto terms = decode_terms(bytes);
  const auto fetch = decode_fetch_request(bytes);
  const auto mapped = decode_mapped(bytes);
  bool sound = is_written_as(request, bytes) && is_written_as(standing, bytes) && is_written_as(terms, bytes) &&
               is_written_as(fetch, bytes);
  if (request) sound = sound && !request->name.empty() && request->name.size() <= most_name_bytes;
  if (standing) sound = sound && standing->bytes <= standing->extent;
  if (terms) sound = sound && terms->rights != AccessRights::none;
  if (mapped) sound = sound && std::ranges::equal(encode_mapped(*mapped), bytes);
  if (const auto table = decode_chunk_table(bytes)) {
    sound = sound && encode(*table).size() == bytes.size();
    for (const ChunkFacts& each : table->chunks)
      sound = sound && each.bytes != 0 && each.offset + each.bytes > each.offset;
  }
  return sound;
}

// As handles, with that many descriptors beside them: each is in a handle, or closed.
inline bool read_handles_in(std::span<const std::byte> bytes, std::size_t descriptors) {
  Message message{.kind = handles_message, .bytes = {bytes.begin(), bytes.end()}};
  message.descriptors = some_descriptors(descriptors);
  const auto handles = handles_in(message);
  if (!handles) return true;
  const auto by_descriptor = std::count_if(handles->begin(), handles->end(), [](const HandleOfMemory& each) {
    return each.handle.type() == HandleType::posix_file_descriptor;
  });
  return handles->size() <= bytes.size() && static_cast<std::size_t>(by_descriptor) == descriptors;
}

// As packets one after the other, each behind its length (2 bytes) and how many descriptors lie beside it (1): until
// one is refused, or the message is complete.
inline bool read_packets_in(std::span<const std::byte> bytes) {
  constexpr std::size_t most_packets = 8;
  constexpr std::size_t most_descriptors = 4;
  constexpr std::size_t frame = 3;
  MessageAssembler assembler({.bytes = 1 << 16, .descriptors = 8});
  for (std::size_t count = 0; count < most_packets && bytes.size() > frame && !assembler.complete(); ++count) {
    const std::size_t length = std::to_integer<std::size_t>(bytes[0]) + 256 * std::to_integer<std::size_t>(bytes[1]);
    const std::size_t descriptors = std::to_integer<std::size_t>(bytes[2]) % most_descriptors;
    const auto packet = bytes.subspan(frame, std::min(length, bytes.size() - frame));
    if (assembler.add(packet, some_descriptors(descriptors))) return true;
    bytes = bytes.subspan(frame + packet.size());
  }
  if (!assembler.complete()) return true;
  const Message message = assembler.take();
  return message.bytes.size() <= 1 << 16 && message.descriptors.size() <= 8;
}

// Whether what was made of them is in keeping: a packet is taken or refused, and nothing is larger than the bytes were.
inline bool read_everything_in(std::span<const std::byte> bytes) {
  MessageAssembler assembler({.bytes = 1 << 16, .descriptors = 8});
  const auto fault = assembler.add(bytes, {});
  bool sound = fault.has_value() != assembler.begun();
  if (assembler.complete()) sound = sound && assembler.take().bytes.size() <= bytes.size();
  const auto introduction = decode_introduction(bytes);
  sound = sound && is_written_as(introduction, bytes);
  if (introduction) sound = sound && introduction->token.size() <= bytes.size();
  if (const auto failure = decode_failure(bytes)) sound = sound && !to_string(failure->kind).starts_with("unknown");
  if (const auto locality = Locality::from_bytes(bytes))
    sound = sound && std::ranges::equal(locality->to_bytes(), bytes);
  for (const std::size_t descriptors : {0U, 2U}) sound = sound && read_handles_in(bytes, descriptors);
  return sound && read_packets_in(bytes) && read_range_messages_in(bytes);
}

}  // namespace cuvmm::sharing::test
