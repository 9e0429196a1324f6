// What a publisher and those who attach say to each other, as bytes and back. Reading takes anything and answers
// nothing for what is no such content. docs/sharing.md tells who says what when.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/access_grant.hpp"
#include "cuvmm/error.hpp"
#include "cuvmm/sharing/locality.hpp"
#include "cuvmm/sharing/message.hpp"
#include "cuvmm/sharing/shareable_handle.hpp"
#include "cuvmm/sharing/withdrawal.hpp"

namespace cuvmm::sharing {

// Far from the kinds that programs count from 16.
inline constexpr MessageKind attach_message = 0xfff0;    // asks for terms
inline constexpr MessageKind terms_message = 0xfff1;     // the reply
inline constexpr MessageKind fetch_message = 0xfff2;     // asks for chunks
inline constexpr MessageKind chunks_message = 0xfff3;    // the reply, with descriptors
inline constexpr MessageKind mapped_message = 0xfff4;    // tells what is mapped
inline constexpr MessageKind standing_message = 0xfff5;  // announces what has changed

inline constexpr std::size_t most_name_bytes = 255;
// Each message is one packet, which is sent and received as a whole, so that a publisher waits for nobody.
inline constexpr std::size_t most_chunks_at_once = 253;
inline constexpr MessageLimits range_message_limits{.bytes = 32'000, .descriptors = most_chunks_at_once};

// The rule of the refusal for which those wait who want to attach.
inline constexpr std::string_view nothing_published = "Nothing is published under that name";
// That of the refusal of chunks for those who have attached before. They can attach once more, to what follows.
inline constexpr std::string_view withdrawn_rule = "The publisher has withdrawn the range, and hands out no more of it";

using DeviceUuid = std::array<std::byte, 16>;

struct AttachRequest {
  std::string name;
  AccessRights rights = AccessRights::none;
  Locality locality{};  // of the driver that is to import
};

// How a publication stands.
struct Standing {
  std::uint64_t publication = 0;  // a random number of its own
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;   // of content
  std::uint64_t extent = 0;  // of addresses: where the last chunk or the content ends
  std::uint32_t chunks = 0;
  std::optional<Withdrawal> withdrawn{};

  friend bool operator==(const Standing&, const Standing&) noexcept = default;
};

struct Terms {
  Standing standing;
  AccessRights rights = AccessRights::none;  // as asked for, at most as offered
};

// One chunk; its handle comes beside it.
struct ChunkFacts {
  std::uint64_t offset = 0;  // from the beginning of what is published
  std::uint64_t bytes = 0;
  Location location{};  // with the publisher's ordinal, which says nothing here
  DeviceUuid device{};  // which of the machine's devices; zeros for memory of the host
  bool compression = false;
  HandleType type = HandleType::posix_file_descriptor;
  FabricBytes fabric{};
};

struct FetchRequest {
  std::uint32_t first = 0;  // of the chunks, in the order in which they were published
};

struct ChunkTable {
  std::uint64_t publication = 0;
  std::uint32_t first = 0;
  std::vector<ChunkFacts> chunks{};
};

// What somebody is told who has attached to it and asks for more.
[[nodiscard]] Failure withdrawn_failure(std::string_view call, std::string_view name, Withdrawal why);

[[nodiscard]] std::vector<std::byte> encode(const AttachRequest& request);
[[nodiscard]] std::vector<std::byte> encode(const Standing& standing);
[[nodiscard]] std::vector<std::byte> encode(const Terms& terms);
[[nodiscard]] std::vector<std::byte> encode(const FetchRequest& request);
[[nodiscard]] std::vector<std::byte> encode(const ChunkTable& table);

[[nodiscard]] std::optional<AttachRequest> decode_attach_request(std::span<const std::byte> bytes);
[[nodiscard]] std::optional<Standing> decode_standing(std::span<const std::byte> bytes);
[[nodiscard]] std::optional<Terms> decode_terms(std::span<const std::byte> bytes);
[[nodiscard]] std::optional<FetchRequest> decode_fetch_request(std::span<const std::byte> bytes);
[[nodiscard]] std::optional<ChunkTable> decode_chunk_table(std::span<const std::byte> bytes);

// How many chunks are mapped: what mapped_message tells.
[[nodiscard]] std::vector<std::byte> encode_mapped(std::uint32_t chunks);
[[nodiscard]] std::optional<std::uint32_t> decode_mapped(std::span<const std::byte> bytes);

}  // namespace cuvmm::sharing
