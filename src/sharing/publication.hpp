// What is published under one name.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cuvmm/mapped_range.hpp"
#include "cuvmm/sharing/locality.hpp"
#include "sharing/range_messages.hpp"

namespace cuvmm::sharing {

struct OfferedChunk {
  ChunkFacts facts;  // with the handle for this node
  ShareableHandle handle;
  SharedPhysicalMemory memory;          // fabric handles keep nothing alive
  std::optional<FabricBytes> fabric{};  // for other nodes, if it can be exported so
  std::string why_no_fabric{};          // where it was made for that, and cannot all the same
};

// All of it is exported, so that to offer it takes no driver call.
struct PublishedContent {
  std::vector<OfferedChunk> chunks;  // by offset
  std::uint64_t bytes = 0;           // of content
};

// Which part of a range is published.
struct PublishedPart {
  DeviceAddress address;    // of the range
  std::size_t offset = 0;   // in the range
  bool to_the_end = false;  // with what is appended later
};

// Guarded by the mutex of the service that offers it; what stands first never changes.
struct Publication {
  std::string name;
  AccessRights rights = AccessRights::read;
  PublishedPart part;
  std::uint64_t number = 0;  // a random one
  Locality locality;         // of the range's driver

  std::uint64_t generation = 0;
  PublishedContent content;
  std::optional<Withdrawal> withdrawn{};
  RangePin pin;

  [[nodiscard]] Standing standing() const {
    const auto& chunks = content.chunks;
    const std::uint64_t end = chunks.empty() ? 0 : chunks.back().facts.offset + chunks.back().facts.bytes;
    return {.publication = number,
            .generation = generation,
            .bytes = content.bytes,
            .extent = std::max(end, content.bytes),  // a hole may be last

            .chunks = static_cast<std::uint32_t>(chunks.size()),
            .withdrawn = withdrawn};
  }
};

// Exports the chunks of the range in [begin, end), whose offsets are to count from `origin`. Makes driver calls. Fails
// with InvalidUse where the bytes begin or end inside a chunk.
[[nodiscard]] Result<std::vector<OfferedChunk>> export_chunks(std::string_view call, const MappedRange& range,
                                                              std::size_t origin, std::size_t begin, std::size_t end);

}  // namespace cuvmm::sharing
