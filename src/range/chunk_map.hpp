// The chunks of a range by their offsets.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "cuvmm/shared_physical_memory.hpp"

namespace cuvmm::range {

// Nodes move between maps without an allocation: what gives back cannot fail.
using ChunkMap = std::map<std::size_t, SharedPhysicalMemory>;

// Bytes of a range.
struct Extent {
  std::size_t offset = 0;
  std::size_t bytes = 0;

  [[nodiscard]] std::size_t end() const noexcept { return offset + bytes; }
};

inline Extent extent_of(const ChunkMap::value_type& chunk) noexcept {
  return {chunk.first, chunk.second.size()};
}

// One past the last byte of the last chunk; 0 where there is none.
inline std::size_t end_of(const ChunkMap& chunks) noexcept {
  return chunks.empty() ? 0 : extent_of(*std::prev(chunks.end())).end();
}

inline std::size_t bytes_of(const ChunkMap& chunks) noexcept {
  std::size_t bytes = 0;
  for (const auto& each : chunks) bytes += each.second.size();
  return bytes;
}

// The first chunk that ends behind the offset.
inline ChunkMap::const_iterator chunk_at_or_after(const ChunkMap& chunks, std::size_t offset) {
  auto found = chunks.upper_bound(offset);
  if (found != chunks.begin() && extent_of(*std::prev(found)).end() > offset) --found;
  return found;
}

inline bool meets(const ChunkMap& chunks, const Extent& extent) {
  const auto found = chunk_at_or_after(chunks, extent.offset);
  return found != chunks.end() && found->first < extent.end();
}

}  // namespace cuvmm::range
