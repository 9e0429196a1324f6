// Reads bytes as each thing that another process may send.
#pragma once

#include <cstdint>
#include <span>

#include "sharing/content.hpp"
#include "sharing/handles_message.hpp"
#include "sharing/packet.hpp"
#include "sharing/range_messages.hpp"

namespace cuvmm::sharing::test {

// What the messages of shared ranges are read as: nothing that could not be.
inline bool read_range_messages_in(std::span<const std::byte> bytes) {
  bool sound = true;
  if (const auto request = decode_attach_request(bytes)) sound = sound && !request->name.empty();
  if (const auto standing = decode_standing(bytes)) sound = sound && standing->bytes <= standing->extent;
  if (const auto terms = decode_terms(bytes)) sound = sound && terms->rights != AccessRights::none;
  std::uint64_t end = 0;
  if (const auto table = decode_chunk_table(bytes))
    for (const ChunkFacts& each : table->chunks) {
      sound = sound && each.offset >= end && each.bytes != 0;
      end = each.offset + each.bytes;
    }
  if (decode_fetch_request(bytes)) sound = sound && bytes.size() == 4;
  if (decode_mapped(bytes)) sound = sound && bytes.size() == 4;
  return sound;
}

// Whether what was made of them is in keeping: a packet is taken or refused, and nothing is larger than the bytes were.
inline bool read_everything_in(std::span<const std::byte> bytes) {
  MessageAssembler assembler({.bytes = 1 << 16, .descriptors = 8});
  const auto fault = assembler.add(bytes, {});
  bool sound = fault.has_value() != assembler.begun();
  if (assembler.complete()) sound = sound && assembler.take().bytes.size() <= bytes.size();
  if (const auto introduction = decode_introduction(bytes)) sound = sound && introduction->token.size() <= bytes.size();
  if (const auto failure = decode_failure(bytes)) sound = sound && !to_string(failure->kind).starts_with("unknown");
  Message message{.kind = handles_message, .bytes = {bytes.begin(), bytes.end()}};
  if (const auto handles = handles_in(message)) sound = sound && handles->size() <= bytes.size();
  if (const auto locality = Locality::from_bytes(bytes)) sound = sound && locality->host.size() <= bytes.size();
  return sound && read_range_messages_in(bytes);
}

}  // namespace cuvmm::sharing::test
