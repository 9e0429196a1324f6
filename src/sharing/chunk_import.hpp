// How chunks of a published range come into this process.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cuvmm/shared_physical_memory.hpp"
#include "cuvmm/sharing/descriptor_socket.hpp"
#include "sharing/range_messages.hpp"

namespace cuvmm::sharing {

struct ImportedChunk {
  std::size_t offset = 0;  // from the beginning of what is published
  SharedPhysicalMemory memory;
};

// Bytes that have a chunk behind them.
class TakenBytes {
 public:
  // Whether none of them was taken before.
  [[nodiscard]] bool take(std::uint64_t offset, std::uint64_t bytes);

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // by where they begin
};

// Which chunks are wanted: those from `first` up to `until`, which lie anywhere in what is not taken, up to `extent`.
struct WantedChunks {
  std::uint64_t publication = 0;
  std::uint32_t first = 0;
  std::uint32_t until = 0;
  std::uint64_t extent = 0;
  TakenBytes taken{};
};

// Asks a publisher for chunks, checks what comes, and imports it; each handle is closed as soon as it is imported.
class ChunkImporter {
 public:
  // Learns the identities of the driver's devices: the publisher's ordinals mean nothing here.
  explicit ChunkImporter(const Driver& driver);

  // All of them, by offset, or none. The answer to the request for the first of them may have come already.
  [[nodiscard]] Result<std::vector<ImportedChunk>> import_from(DescriptorSocket& publisher, WantedChunks wanted,
                                                               const Deadline& deadline,
                                                               std::optional<Message> answer = {}) const;

 private:
  [[nodiscard]] Result<SharedPhysicalMemory> import_one(const ChunkFacts& facts, const ShareableHandle& handle) const;

  Driver driver_;
  std::map<DeviceUuid, DeviceOrdinal> devices_;
};

// What a publisher sent that it should not have.
[[nodiscard]] Failure wrong_answer(const DescriptorSocket& publisher, std::string reason);

}  // namespace cuvmm::sharing
