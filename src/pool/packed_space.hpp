// Where allocations are packed side by side.
#pragma once

#include <compare>
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
//
// The space is divided into regions, each for allocations of like size: what one of them leaves behind fits the next,
// and what lives long does not come to lie in a hole of something larger, of which the rest is too small for anybody.
class PackedSpace {
 public:
  static constexpr std::size_t alignment = 512;
  // Up to 512 KiB, and from there to 64 MiB four to each power of two. What is larger shares the last one.
  static constexpr std::size_t all_regions = 29;

  PackedSpace(std::size_t bytes, std::size_t granularity, std::size_t regions = all_regions);

  enum class State : unsigned char { unmapped, free, busy, live };
  struct Block {
    std::size_t bytes = 0;
    State state = State::unmapped;
    Claim claim{};    // if free
    Tenant tenant{};  // if live
  };
  using Blocks = std::map<std::size_t, Block>;

  // The smallest free block of their region that the stream may use, cut to size and live from now on. O(log n).
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes, const Tenant& tenant);
  // The same in any region.
  [[nodiscard]] std::optional<std::size_t> take_anywhere(std::size_t bytes, const Tenant& tenant);
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
  // What is free beside something else in its granule, so that it cannot be mapped elsewhere.
  [[nodiscard]] std::size_t splinter_bytes() const noexcept { return splinter_bytes_; }

  [[nodiscard]] std::size_t regions() const noexcept { return regions_; }
  [[nodiscard]] std::size_t region_for(std::size_t bytes) const noexcept;

  // Where in a region an allocation needs fewest granules mapped, among free blocks that the stream may use and
  // addresses without memory.
  struct Fit {
    Place place;
    std::size_t missing = 0;  // bytes of whole granules without memory
    std::size_t extent = 0;   // of the free addresses that it lies in
  };
  [[nodiscard]] std::optional<Fit> find(std::size_t bytes, StreamNumber stream, std::size_t region) const;

  // The same, taken out of the books.
  struct Window {
    Place place;                                        // of the allocation
    Place whole;                                        // the same with all of its granules that have no memory
    std::vector<Place> unmapped;                        // whole granules
    std::vector<std::pair<std::size_t, Block>> before;  // what it was made of
  };
  [[nodiscard]] Window open(const Place& place);
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
  struct Hole {
    std::size_t region, bytes, offset;
    friend auto operator<=>(const Hole&, const Hole&) noexcept = default;
  };

  [[nodiscard]] std::size_t region_at(std::size_t offset) const noexcept;
  [[nodiscard]] bool begins_region(std::size_t offset) const noexcept {
    return offset % region_bytes_ == 0 && offset / region_bytes_ < regions_;
  }
  [[nodiscard]] Hole hole(Blocks::const_iterator block) const noexcept;
  void set(const Place& place, Block block);
  Blocks::iterator split(std::size_t offset);  // the block that begins there
  void index(Blocks::const_iterator block);
  void unindex(Blocks::const_iterator block);
  Blocks::iterator merge(Blocks::iterator block);
  [[nodiscard]] static bool alike(const Block& a, const Block& b) noexcept;
  [[nodiscard]] static bool usable(const Block& block, StreamNumber stream) noexcept;
  [[nodiscard]] std::size_t splinters(const Hole& hole) const noexcept;
  [[nodiscard]] std::optional<Hole> best(StreamNumber stream, std::size_t region, std::size_t bytes) const;
  [[nodiscard]] std::optional<Hole> best_of_both(StreamNumber stream, std::size_t region, std::size_t bytes) const;
  [[nodiscard]] std::size_t unmapped_in(std::size_t begin, std::size_t end) const;

  std::size_t granularity_;
  std::size_t regions_;
  std::size_t region_bytes_;  // but for the last one, which has the rest, too
  Blocks blocks_;
  std::unordered_map<StreamNumber, std::set<Hole>> free_;
  std::size_t splinter_bytes_ = 0;
  std::map<std::size_t, Chunk> chunks_;
};

}  // namespace cuvmm::pool
