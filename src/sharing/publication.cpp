#include "sharing/publication.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cuvmm/device.hpp"
#include "refusal.hpp"

namespace cuvmm::sharing {

namespace {

std::string text_of(const ChunkInfo& chunk) {
  return fmt::format("chunk at {} of {}", chunk.offset, format_bytes(chunk.bytes));
}

Failure cut_chunk(std::string_view call, const ChunkInfo& chunk, std::size_t begin, std::size_t end) {
  return invalid_use(call, fmt::format("offset = {}, bytes = {}, {}", begin, end - begin, text_of(chunk)),
                     "Memory cannot be divided: only whole chunks are published", "See MappedRange::chunks()",
                     "MAP-WHOLE-ALLOCATION");
}

// What this node has it for; that it cannot be had is no failure where nobody of another node comes.
void add_fabric_handle(OfferedChunk& chunk) {
  if (chunk.facts.type == HandleType::fabric) {
    chunk.fabric = chunk.facts.fabric;
    return;
  }
  const PhysicalMemory& memory = chunk.memory.memory();
  if (!memory.properties().handle_types.contains(HandleType::fabric)) return;
  auto exported = ShareableHandle::try_export_from(memory, HandleType::fabric);
  if (exported)
    chunk.fabric = exported->fabric_bytes();
  else
    chunk.why_no_fabric = exported.failure().message();
}

Result<OfferedChunk> export_chunk(const MappedRange& range, std::size_t origin, const ChunkInfo& chunk) {
  SharedPhysicalMemory memory = range.memory_at(chunk.offset);
  const MemoryProperties& properties = memory.properties();
  const bool by_descriptor = properties.handle_types.contains(HandleType::posix_file_descriptor) ||
                             !properties.handle_types.contains(HandleType::fabric);
  const HandleType type = by_descriptor ? HandleType::posix_file_descriptor : HandleType::fabric;
  auto handle = ShareableHandle::try_export_from(memory.memory(), type);
  if (!handle) return handle.failure();
  ChunkFacts facts{.offset = chunk.offset - origin, .bytes = chunk.bytes, .location = properties.location};
  facts.compression = properties.compression;
  facts.type = type;
  if (type == HandleType::fabric) facts.fabric = handle->fabric_bytes();
  if (properties.location.kind == LocationKind::device)
    facts.device = range.driver().device(DeviceOrdinal(properties.location.id)).uuid();
  OfferedChunk offered{facts, std::move(handle).value(), std::move(memory)};
  add_fabric_handle(offered);
  return offered;
}

}  // namespace

void PublishedContent::add(std::vector<OfferedChunk> more) {
  chunks.reserve(chunks.size() + more.size());
  count += static_cast<std::uint32_t>(more.size());
  for (const OfferedChunk& each : more) chunks_end = std::max(chunks_end, each.facts.offset + each.facts.bytes);
  std::move(more.begin(), more.end(), std::back_inserter(chunks));
}

Result<std::vector<OfferedChunk>> export_chunks(std::string_view call, const MappedRange& range, std::size_t begin,
                                                std::size_t end, const std::set<std::uint64_t>& known) try {
  std::vector<OfferedChunk> exported;
  for (const ChunkInfo& chunk : range.chunks()) {
    const std::size_t chunk_end = chunk.offset + chunk.bytes;
    if (chunk.quarantined || chunk_end <= begin || chunk.offset >= end) continue;
    // The content may end inside the last chunk.
    if (chunk.offset < begin || (chunk_end > end && end != range.size())) return cut_chunk(call, chunk, begin, end);
    if (known.contains(chunk.offset - begin)) continue;
    auto one = export_chunk(range, begin, chunk);
    if (!one) return one.failure();
    exported.push_back(std::move(one).value());
  }
  return exported;
} catch (const Error& error) {  // of the questions for devices
  return error.failure();
}

}  // namespace cuvmm::sharing
