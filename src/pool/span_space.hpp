// Where large allocations lie: each on whole chunks.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool/chunk.hpp"

namespace cuvmm::pool {

// Spans of chunks side by side, and the addresses between them. Knows nothing of the driver; not thread-safe. All
// offsets count from the beginning of the space.
class SpanSpace {
 public:
  explicit SpanSpace(std::size_t bytes) { addresses_.emplace(0, bytes); }

  enum class State : unsigned char { free, busy, live };
  struct Span {
    std::size_t bytes = 0;
    std::vector<Chunk> chunks{};
    State state = State::free;
    Claim claim{};    // if free
    Tenant tenant{};  // if live
  };
  using Spans = std::map<std::size_t, Span>;

  // A free span that the stream may use, of that size or hardly more; live from now on. O(log n).
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes, const Tenant& tenant);
  // The same where the first chunks of a larger one happen to have that size.
  [[nodiscard]] std::optional<std::size_t> take_part(std::size_t bytes, const Tenant& tenant);
  void give(std::size_t offset, const Claim& claim);
  void detain(std::size_t offset);
  void readmit(std::size_t offset, const Tenant& tenant);
  void ripen(StreamNumber stream, std::uint64_t freed);

  [[nodiscard]] const Spans& spans() const noexcept { return spans_; }
  [[nodiscard]] Spans::const_iterator at(std::size_t offset) const;  // the span that it lies in, or the end
  [[nodiscard]] Spans& all() noexcept { return spans_; }

  // Addresses with nothing behind them; as many before them are left free where there are enough, so that what lies
  // there can be extended.
  [[nodiscard]] std::optional<std::size_t> take_addresses(std::size_t bytes);
  void give_addresses(const Place& place);

  // The beginning or the end of a free span, which stays mapped as a part of a larger allocation, and the addresses
  // beside it for the rest of that. Out of the books, both.
  struct Kept {
    std::vector<Chunk> chunks{};
    Claim claim{};
    Place place{};    // of these
    Place missing{};  // right before it or behind it

    [[nodiscard]] std::size_t begin() const noexcept { return std::min(place.offset, missing.offset); }
  };
  // The largest that the stream may use, of no more than so many bytes and with free addresses beside it.
  [[nodiscard]] std::optional<Kept> keep(std::size_t bytes, StreamNumber stream);
  void put_back(Kept&& kept);  // without the addresses beside it
  void extend(Kept&& kept, std::vector<Chunk>&& chunks, const Tenant& tenant);

  void add(std::size_t offset, std::vector<Chunk>&& chunks, const Tenant& tenant);
  [[nodiscard]] std::vector<Place> free_chunks() const;  // that nobody's work may use
  // Takes one of these out; what its span has beside it goes on as smaller ones.
  [[nodiscard]] Chunk take_chunk(std::size_t offset);
  void vacate(const Place& place) { give_addresses(place); }
  void put_back(std::size_t offset, Chunk&& chunk);

 private:
  using FreeSpans = std::set<std::pair<std::size_t, std::size_t>>;  // bytes, offset

  // How much of a free span stays if that is extended at one side.
  struct Extensible {
    Spans::iterator span{};
    bool at_end = false;     // behind it, and its last chunks stay; else before it, and its first ones do
    std::size_t chunks = 0;  // that stay
    std::size_t bytes = 0;   // of these
  };
  [[nodiscard]] Extensible extensible(Spans::iterator span, std::size_t bytes, bool at_end) const;
  [[nodiscard]] std::size_t free_addresses_beside(const Place& place, bool at_end) const;
  void take_addresses_at(const Place& place);
  // The first or the last chunks of a free span. What it has beside them goes on as a smaller one.
  [[nodiscard]] std::vector<Chunk> cut(Spans::iterator span, std::size_t count, bool at_end);

  void insert(std::size_t offset, Span&& span);
  void index(Spans::const_iterator span);
  void unindex(Spans::const_iterator span);
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> best(StreamNumber stream, std::size_t bytes) const;

  Spans spans_;
  std::unordered_map<StreamNumber, FreeSpans> free_;
  std::map<std::size_t, std::size_t> addresses_;  // that are free: offset, bytes
};

}  // namespace cuvmm::pool
