// What is published under one name.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
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

// All of it is exported, so that to offer it takes no driver call. Once it is withdrawn the chunks are given back; what
// they were is still told.
struct PublishedContent {
  std::vector<OfferedChunk> chunks{};  // in the order in which they were published
  std::uint32_t count = 0;             // of chunks
  std::uint64_t chunks_end = 0;        // where the last one ends
  std::uint64_t bytes = 0;             // of content

  void add(std::vector<OfferedChunk> more);
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
  RangeObservation watch;  // for what is unmapped in spite of the pin

  [[nodiscard]] Standing standing() const {
    return {.publication = number,
            .generation = generation,
            .bytes = content.bytes,
            .extent = std::max(content.chunks_end, content.bytes),  // a hole may be last
            .chunks = content.count,
            .withdrawn = withdrawn};
  }
};

// Exports the chunks of the range in [begin, end), whose offsets are to count from `begin`, but for those at the
// offsets that are known. Makes driver calls. Fails with InvalidUse where the bytes begin or end inside a chunk.
[[nodiscard]] Result<std::vector<OfferedChunk>> export_chunks(std::string_view call, const MappedRange& range,
                                                              std::size_t begin, std::size_t end,
                                                              const std::set<std::uint64_t>& known = {});

}  // namespace cuvmm::sharing
