// Where allocations are packed side by side.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool/chunk.hpp"

namespace cuvmm::pool {

// Addresses in blocks that tile them: live, free, without memory, or being changed by a thread that has left the lock.
// Free neighbours of one owner are one block. Chunks lie behind the blocks, whose borders they do not share. Knows
// nothing of the driver; not thread-safe. All offsets count from the beginning of the space.
class PackedSpace {
 public:
  static constexpr std::size_t alignment = 512;

  PackedSpace(std::size_t bytes, std::size_t granularity);

  enum class State : unsigned char { unmapped, free, busy, live };
  struct Block {
    std::size_t bytes = 0;
    State state = State::unmapped;
    Claim claim{};    // if free
    Tenant tenant{};  // if live
  };
  using Blocks = std::map<std::size_t, Block>;

  // The smallest free block that the stream may use, cut to size and live from now on. O(log n).
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes, const Tenant& tenant);
  // The live block there is free from now on.
  void give(std::size_t offset, const Claim& claim);
  // The live block there is in between: freed, but not yet free.
  void detain(std::size_t offset);
  void readmit(std::size_t offset, const Tenant& tenant);  // it is live after all
  // What the stream gave back up to that count is everybody's.
  void ripen(StreamNumber stream, std::uint64_t freed);

  // The block that the offset lies in.
  [[nodiscard]] Blocks::const_iterator at(std::size_t offset) const;
  [[nodiscard]] const Blocks& blocks() const noexcept { return blocks_; }

  // A place for an allocation that needs memory mapped: in it are free blocks that the stream may use, and addresses
  // without memory, of which there are as few as possible.
  struct Window {
    Place place;                                        // of the allocation
    Place whole;                                        // the same with all of its granules that have no memory
    std::vector<Place> unmapped;                        // whole granules
    std::vector<std::pair<std::size_t, Block>> before;  // what it was made of
  };
  [[nodiscard]] std::optional<Window> open(std::size_t bytes, StreamNumber stream);
  void let(const Window& window, const Tenant& tenant);  // now there is memory everywhere
  void close(const Window& window);                      // as it was before

  // Chunks, by offset. Of those taken, the addresses are busy until one of the other two is called.
  void add(std::size_t offset, Chunk&& chunk) { chunks_.emplace(offset, std::move(chunk)); }
  [[nodiscard]] std::vector<Place> free_chunks() const;  // that nobody's work may use
  [[nodiscard]] Chunk take_chunk(std::size_t offset);
  void vacate(const Place& place) { set(place, {.state = State::unmapped}); }
  void put_back(std::size_t offset, Chunk&& chunk);
  void shut(const Place& place) { set(place, {.state = State::busy}); }  // for ever
  [[nodiscard]] const std::map<std::size_t, Chunk>& chunks() const noexcept { return chunks_; }

 private:
  using FreeBlocks = std::set<std::pair<std::size_t, std::size_t>>;  // bytes, offset

  void set(const Place& place, Block block);
  Blocks::iterator split(std::size_t offset);  // the block that begins there
  void index(Blocks::const_iterator block);
  void unindex(Blocks::const_iterator block);
  Blocks::iterator merge(Blocks::iterator block);
  [[nodiscard]] static bool alike(const Block& a, const Block& b) noexcept;
  [[nodiscard]] static bool usable(const Block& block, StreamNumber stream) noexcept;
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> best(StreamNumber stream, std::size_t bytes) const;
  [[nodiscard]] std::size_t unmapped_in(std::size_t begin, std::size_t end) const;

  std::size_t granularity_;
  Blocks blocks_;
  std::unordered_map<StreamNumber, FreeBlocks> free_;
  std::map<std::size_t, Chunk> chunks_;
};

}  // namespace cuvmm::pool
