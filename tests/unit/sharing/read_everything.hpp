// Reads bytes as each thing that another process may send.
#pragma once

#include <cstdint>
#include <span>

#include "sharing/content.hpp"
#include "sharing/handles_message.hpp"
#include "sharing/packet.hpp"

namespace cuvmm::sharing::test {

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
  return sound;
}

}  // namespace cuvmm::sharing::test
