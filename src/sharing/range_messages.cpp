#include "sharing/range_messages.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "refusal.hpp"
#include "sharing/locality_fields.hpp"

namespace cuvmm::sharing {

std::string_view to_string(Withdrawal why) noexcept {
  switch (why) {
    case Withdrawal::ended:
      return "ended";
    case Withdrawal::sleep:
      return "sleep";
    case Withdrawal::replaced:
      return "replaced";
  }
  return "unknown";
}

namespace {

constexpr std::uint8_t no_withdrawal = 0;

void write(Writer& writer, const Standing& standing) {
  writer.number(standing.publication).number(standing.generation).number(standing.bytes).number(standing.extent);
  writer.number(standing.chunks);
  writer.number(standing.withdrawn ? static_cast<std::uint8_t>(*standing.withdrawn) : no_withdrawal);
}

std::optional<Standing> read_standing(Reader& reader) {
  Standing standing;
  standing.publication = reader.number<std::uint64_t>();
  standing.generation = reader.number<std::uint64_t>();
  standing.bytes = reader.number<std::uint64_t>();
  standing.extent = reader.number<std::uint64_t>();
  standing.chunks = reader.number<std::uint32_t>();
  const auto withdrawn = reader.number<std::uint8_t>();
  if (withdrawn > static_cast<std::uint8_t>(Withdrawal::replaced) || standing.bytes > standing.extent)
    return std::nullopt;
  if (withdrawn != no_withdrawal) standing.withdrawn = static_cast<Withdrawal>(withdrawn);
  return standing;
}

void write(Writer& writer, AccessRights rights) {
  writer.number(static_cast<std::uint8_t>(rights));
}

// Rights that make sense to share.
std::optional<AccessRights> read_rights(Reader& reader) {
  const auto rights = static_cast<AccessRights>(reader.number<std::uint8_t>());
  if (rights != AccessRights::read && rights != AccessRights::read_write) return std::nullopt;
  return rights;
}

void write(Writer& writer, const ChunkFacts& chunk) {
  writer.number(chunk.offset).number(chunk.bytes);
  writer.number(static_cast<std::uint8_t>(chunk.location.kind)).number(static_cast<std::uint32_t>(chunk.location.id));
  writer.raw(chunk.device).number(std::uint8_t{chunk.compression}).number(static_cast<std::uint32_t>(chunk.type));
  if (chunk.type == HandleType::fabric) writer.raw(chunk.fabric);
}

std::optional<ChunkFacts> read_chunk(Reader& reader) {
  ChunkFacts chunk;
  chunk.offset = reader.number<std::uint64_t>();
  chunk.bytes = reader.number<std::uint64_t>();
  const auto kind = reader.number<std::uint8_t>();
  const auto id = reader.number<std::uint32_t>();
  const auto device = reader.raw(chunk.device.size());
  chunk.compression = reader.number<std::uint8_t>() != 0;
  const auto type = reader.number<std::uint32_t>();
  if (reader.failed() || chunk.bytes == 0 || chunk.offset > UINT64_MAX - chunk.bytes) return std::nullopt;
  if (kind != static_cast<int>(LocationKind::device) && kind != static_cast<int>(LocationKind::host_numa))
    return std::nullopt;
  chunk.location = {static_cast<LocationKind>(kind), static_cast<int>(id)};
  std::copy(device.begin(), device.end(), chunk.device.begin());
  chunk.type = static_cast<HandleType>(type);
  if (chunk.type == HandleType::posix_file_descriptor) return chunk;
  if (chunk.type != HandleType::fabric) return std::nullopt;
  const auto fabric = reader.raw(chunk.fabric.size());
  if (reader.failed()) return std::nullopt;
  std::copy(fabric.begin(), fabric.end(), chunk.fabric.begin());
  return chunk;
}

}  // namespace

Failure withdrawn_failure(std::string_view call, std::string_view name, Withdrawal why) {
  return invalid_use(
      call, fmt::format("name = '{}', withdrawn: {}", name, to_string(why)), std::string(withdrawn_rule),
      why == Withdrawal::ended
          ? "What is attached can be used until AttachedRange::detach(), which the publisher waits for"
          : "Call AttachedRange::detach(), which the publisher waits for, and attach to what it publishes "
            "next under that name, with AttachOptions::wait_for_publisher");
}

std::vector<std::byte> encode(const AttachRequest& request) {
  Writer writer;
  writer.text(request.name);
  write(writer, request.rights);
  write(writer, request.locality);
  return writer.take();
}

std::optional<AttachRequest> decode_attach_request(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  AttachRequest request;
  request.name = reader.text(most_name_bytes);
  const auto rights = read_rights(reader);
  request.locality = read_locality(reader);
  if (!reader.complete() || !rights || request.name.empty()) return std::nullopt;
  request.rights = *rights;
  return request;
}

std::vector<std::byte> encode(const Standing& standing) {
  Writer writer;
  write(writer, standing);
  return writer.take();
}

std::optional<Standing> decode_standing(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  auto standing = read_standing(reader);
  return reader.complete() ? standing : std::nullopt;
}

std::vector<std::byte> encode(const Terms& terms) {
  Writer writer;
  write(writer, terms.standing);
  write(writer, terms.rights);
  return writer.take();
}

std::optional<Terms> decode_terms(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const auto standing = read_standing(reader);
  const auto rights = read_rights(reader);
  if (!reader.complete() || !standing || !rights) return std::nullopt;
  return Terms{*standing, *rights};
}

std::vector<std::byte> encode(const FetchRequest& request) {
  Writer writer;
  return writer.number(request.first).take();
}

std::optional<FetchRequest> decode_fetch_request(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const FetchRequest request{reader.number<std::uint32_t>()};
  return reader.complete() ? std::optional(request) : std::nullopt;
}

std::vector<std::byte> encode(const ChunkTable& table) {
  Writer writer;
  writer.number(table.publication).number(table.first);
  for (const ChunkFacts& each : table.chunks) write(writer, each);
  return writer.take();
}

std::optional<ChunkTable> decode_chunk_table(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  ChunkTable table;
  table.publication = reader.number<std::uint64_t>();
  table.first = reader.number<std::uint32_t>();
  while (reader.left() != 0) {
    const auto chunk = read_chunk(reader);
    if (!chunk) return std::nullopt;
    table.chunks.push_back(*chunk);
  }
  if (!reader.complete()) return std::nullopt;
  return table;
}

std::vector<std::byte> encode_mapped(std::uint32_t chunks) {
  Writer writer;
  return writer.number(chunks).take();
}

std::optional<std::uint32_t> decode_mapped(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const auto chunks = reader.number<std::uint32_t>();
  return reader.complete() ? std::optional(chunks) : std::nullopt;
}

}  // namespace cuvmm::sharing
