#include "sharing/chunk_import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cuvmm/device.hpp"

namespace cuvmm::sharing {

Failure wrong_answer(const DescriptorSocket& publisher, std::string reason) {
  Failure failure;
  failure.kind = ErrorKind::protocol_violation;
  failure.call = "AttachedRange";
  failure.arguments = fmt::format("publisher = process {}", publisher.peer().process);
  failure.reason = std::move(reason);
  return failure;
}

namespace {

// Chunks that were asked for, with the descriptors that came beside them.
struct FetchedChunks {
  std::vector<ChunkFacts> facts;
  std::vector<UniqueDescriptor> descriptors;
};

std::optional<std::string> fault_in(const ChunkTable& table, const WantedChunks& wanted) {
  if (table.publication != wanted.publication) return "the chunks are of another publication";
  if (table.first != wanted.first)
    return fmt::format("chunks from {} on came instead of {}", table.first, wanted.first);
  if (table.chunks.empty()) return "there are fewer chunks than were announced";
  return std::nullopt;
}

std::optional<std::string> fault_in(const ChunkFacts& chunk, WantedChunks& wanted) {
  if (chunk.offset + chunk.bytes > wanted.extent) return "a chunk ends behind what was announced";
  if (!wanted.taken.take(chunk.offset, chunk.bytes)) return "a chunk lies over another";
  return std::nullopt;
}

Result<Message> ask_for_chunks(DescriptorSocket& publisher, std::uint32_t first, const Deadline& deadline) {
  const auto request = encode(FetchRequest{first});
  return publisher.try_ask({.kind = fetch_message, .bytes = request}, deadline);
}

Result<FetchedChunks> checked(Message answer, const DescriptorSocket& publisher, const WantedChunks& wanted) {
  if (answer.kind != chunks_message)
    return wrong_answer(publisher, fmt::format("a message of kind {} came instead of chunks", answer.kind));
  auto table = decode_chunk_table(answer.bytes);
  if (!table) return wrong_answer(publisher, "the table of chunks cannot be read");
  if (auto fault = fault_in(*table, wanted)) return wrong_answer(publisher, std::move(*fault));
  const auto by_descriptor = std::count_if(table->chunks.begin(), table->chunks.end(), [](const ChunkFacts& each) {
    return each.type == HandleType::posix_file_descriptor;
  });
  if (static_cast<std::size_t>(by_descriptor) != answer.descriptors.size())
    return wrong_answer(publisher,
                        fmt::format("{} descriptors came for {} chunks", answer.descriptors.size(), by_descriptor));
  return FetchedChunks{std::move(table->chunks), std::move(answer.descriptors)};
}

}  // namespace

bool TakenBytes::take(std::uint64_t offset, std::uint64_t bytes) {
  const auto behind = ends_.upper_bound(offset);
  if (behind != ends_.end() && behind->first - offset < bytes) return false;
  if (behind != ends_.begin() && std::prev(behind)->second > offset) return false;
  ends_.emplace_hint(behind, offset, offset + bytes);
  return true;
}

ChunkImporter::ChunkImporter(const Driver& driver) : driver_(driver) {
  for (const Device& each : driver.devices()) devices_.emplace(each.uuid(), each.ordinal());
}

Result<SharedPhysicalMemory> ChunkImporter::import_one(const ChunkFacts& facts, const ShareableHandle& handle) const {
  ImportedMemory memory{.bytes = static_cast<std::size_t>(facts.bytes)};
  const auto known = devices_.find(facts.device);
  if (facts.location.kind != LocationKind::device)
    memory.properties = {.location = facts.location};
  else if (known != devices_.end())
    memory.properties = {.location = Location::device(known->second)};
  // Else the driver is asked what it makes of the memory of a device that this process does not see.
  if (memory.properties) memory.properties->compression = facts.compression;
  auto imported = handle.try_import_into(driver_, memory);
  if (!imported) return imported.failure();
  return SharedPhysicalMemory(std::move(imported).value());
}

Result<std::vector<ImportedChunk>> ChunkImporter::import_from(DescriptorSocket& publisher, WantedChunks wanted,
                                                              const Deadline& deadline,
                                                              std::optional<Message> answer) const {
  std::vector<ImportedChunk> chunks;
  for (; wanted.first < wanted.until; answer.reset()) {
    if (!answer) {
      auto asked = ask_for_chunks(publisher, wanted.first, deadline);
      if (!asked) return asked.failure();
      answer = std::move(asked).value();
    }
    auto fetched = checked(std::move(*answer), publisher, wanted);
    if (!fetched) return fetched.failure();
    auto descriptor = fetched->descriptors.begin();
    for (const ChunkFacts& each : fetched->facts) {
      if (wanted.first == wanted.until) break;  // what was appended meanwhile may lie anywhere
      if (auto fault = fault_in(each, wanted)) return wrong_answer(publisher, std::move(*fault));
      const ShareableHandle handle = each.type == HandleType::fabric ? ShareableHandle::from_bytes(each.fabric)
                                                                     : ShareableHandle::adopt(std::move(*descriptor++));
      auto imported = import_one(each, handle);
      if (!imported) return imported.failure();
      chunks.push_back({static_cast<std::size_t>(each.offset), std::move(imported).value()});
      ++wanted.first;
    }
  }
  std::sort(chunks.begin(), chunks.end(), [](const auto& one, const auto& other) { return one.offset < other.offset; });
  return chunks;
}

}  // namespace cuvmm::sharing
