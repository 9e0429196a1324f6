// Large allocations that begin or end with free memory that stays where it is: nothing is unmapped, mapped or granted
// for that.
#include <algorithm>
#include <iterator>

#include "pool/span_space.hpp"

namespace cuvmm::pool {

std::size_t SpanSpace::free_addresses_beside(const Place& place, bool at_end) const {
  auto found = addresses_.lower_bound(at_end ? place.end() : place.offset);
  if (at_end) return found != addresses_.end() && found->first == place.end() ? found->second : 0;
  if (found == addresses_.begin()) return 0;
  found = std::prev(found);
  return found->first + found->second == place.offset ? found->second : 0;
}

void SpanSpace::take_addresses_at(const Place& place) {
  if (place.bytes == 0) return;
  const auto found = std::prev(addresses_.upper_bound(place.offset));
  const Place whole{found->first, found->second};
  addresses_.erase(found);
  if (whole.offset != place.offset) addresses_.emplace(whole.offset, place.offset - whole.offset);
  if (whole.end() != place.end()) addresses_.emplace(place.end(), whole.end() - place.end());
}

std::vector<Chunk> SpanSpace::cut(Spans::iterator span, std::size_t count, bool at_end) {
  unindex(span);
  auto [offset, whole] = std::move(*span);
  spans_.erase(span);
  const auto border = whole.chunks.begin() + static_cast<std::ptrdiff_t>(at_end ? whole.chunks.size() - count : count);
  std::vector<Chunk> first(std::make_move_iterator(whole.chunks.begin()), std::make_move_iterator(border));
  std::vector<Chunk> last(std::make_move_iterator(border), std::make_move_iterator(whole.chunks.end()));
  std::size_t begin_of_last = offset;
  for (const Chunk& each : first) begin_of_last += each.bytes();
  std::vector<Chunk>& others = at_end ? first : last;
  if (!others.empty()) {
    const std::size_t end = at_end ? begin_of_last : offset + whole.bytes;
    const std::size_t begin = at_end ? offset : begin_of_last;
    insert(begin, {.bytes = end - begin, .chunks = std::move(others), .claim = whole.claim});
  }
  return at_end ? std::move(last) : std::move(first);
}

SpanSpace::Extensible SpanSpace::extensible(Spans::iterator span, std::size_t bytes, bool at_end) const {
  Extensible found{span, at_end};
  const std::vector<Chunk>& chunks = span->second.chunks;
  for (; found.chunks < chunks.size(); ++found.chunks) {
    const Chunk& next = at_end ? chunks[chunks.size() - 1 - found.chunks] : chunks[found.chunks];
    if (next.bytes() > bytes - found.bytes) break;
    found.bytes += next.bytes();
  }
  const std::size_t beside = free_addresses_beside({span->first, span->second.bytes}, at_end);
  if (beside < bytes - found.bytes) found.bytes = 0;
  return found;
}

std::optional<SpanSpace::Kept> SpanSpace::keep(std::size_t bytes, StreamNumber stream) {
  Extensible best;
  for (const StreamNumber owner : {stream, everybody}) {
    const auto free = free_.find(owner);
    if (free == free_.end()) continue;
    for (const auto& each : free->second)
      for (const bool at_end : {true, false})
        if (const Extensible one = extensible(spans_.find(each.second), bytes, at_end); one.bytes > best.bytes)
          best = one;
  }
  if (best.bytes == 0) return std::nullopt;
  const Place whole{best.span->first, best.span->second.bytes};
  const std::size_t missing = bytes - best.bytes;
  Kept kept{.claim = best.span->second.claim};
  kept.place = {best.at_end ? whole.end() - best.bytes : whole.offset, best.bytes};
  kept.missing = {best.at_end ? whole.end() : whole.offset - missing, missing};
  kept.chunks = cut(best.span, best.chunks, best.at_end);
  take_addresses_at(kept.missing);
  return kept;
}

void SpanSpace::put_back(Kept&& kept) {
  insert(kept.place.offset, {.bytes = kept.place.bytes, .chunks = std::move(kept.chunks), .claim = kept.claim});
}

void SpanSpace::extend(Kept&& kept, std::vector<Chunk>&& chunks, const Tenant& tenant) {
  const std::size_t begin = kept.begin();
  std::vector<Chunk>& first = kept.missing.offset < kept.place.offset ? chunks : kept.chunks;
  std::vector<Chunk>& last = &first == &chunks ? kept.chunks : chunks;
  std::move(last.begin(), last.end(), std::back_inserter(first));
  add(begin, std::move(first), tenant);
}

}  // namespace cuvmm::pool
