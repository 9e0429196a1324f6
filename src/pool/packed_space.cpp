#include "pool/packed_space.hpp"

#include <algorithm>

namespace cuvmm::pool {

PackedSpace::PackedSpace(std::size_t bytes, std::size_t granularity) : granularity_(granularity) {
  blocks_.emplace(0, Block{.bytes = bytes});
}

bool PackedSpace::alike(const Block& a, const Block& b) noexcept {
  if (a.state != b.state) return false;
  return a.state == State::unmapped || (a.state == State::free && a.claim.stream == b.claim.stream);
}

bool PackedSpace::usable(const Block& block, StreamNumber stream) noexcept {
  return block.state == State::unmapped ||
         (block.state == State::free && (block.claim.stream == everybody || block.claim.stream == stream));
}

void PackedSpace::index(Blocks::const_iterator block) {
  if (block->second.state == State::free) free_[block->second.claim.stream].emplace(block->second.bytes, block->first);
}

void PackedSpace::unindex(Blocks::const_iterator block) {
  if (block->second.state == State::free) free_[block->second.claim.stream].erase({block->second.bytes, block->first});
}

PackedSpace::Blocks::const_iterator PackedSpace::at(std::size_t offset) const {
  return std::prev(blocks_.upper_bound(offset));
}

PackedSpace::Blocks::iterator PackedSpace::split(std::size_t offset) {
  const auto found = blocks_.upper_bound(offset);
  if (found == blocks_.begin()) return found;
  const auto first = std::prev(found);
  if (first->first == offset) return first;
  const std::size_t end = first->first + first->second.bytes;
  if (offset >= end) return found;  // the end of all
  Block rest = first->second;
  rest.bytes = end - offset;
  unindex(first);
  first->second.bytes = offset - first->first;
  index(first);
  const auto second = blocks_.emplace_hint(found, offset, rest);
  index(second);
  return second;
}

PackedSpace::Blocks::iterator PackedSpace::merge(Blocks::iterator block) {
  const auto join = [&](Blocks::iterator first, Blocks::iterator second) {
    unindex(first);
    unindex(second);
    first->second.bytes += second->second.bytes;
    first->second.claim.freed = std::max(first->second.claim.freed, second->second.claim.freed);
    blocks_.erase(second);
    index(first);
    return first;
  };
  if (const auto next = std::next(block); next != blocks_.end() && alike(block->second, next->second))
    block = join(block, next);
  if (block != blocks_.begin() && alike(std::prev(block)->second, block->second)) block = join(std::prev(block), block);
  return block;
}

void PackedSpace::set(const Place& place, Block block) {
  if (place.bytes == 0) return;
  const auto first = split(place.offset);
  const auto last = split(place.end());
  for (auto each = std::next(first); each != last; each = blocks_.erase(each)) unindex(each);
  unindex(first);
  block.bytes = place.bytes;
  first->second = block;
  index(first);
  merge(first);
}

std::optional<std::pair<std::size_t, std::size_t>> PackedSpace::best(StreamNumber stream, std::size_t bytes) const {
  const auto of_stream = free_.find(stream);
  if (of_stream == free_.end()) return std::nullopt;
  const auto found = of_stream->second.lower_bound({bytes, 0});
  if (found == of_stream->second.end()) return std::nullopt;
  return *found;
}

std::optional<std::size_t> PackedSpace::take(std::size_t bytes, const Tenant& tenant) {
  auto found = best(tenant.stream, bytes);
  const auto other = best(everybody, bytes);
  if (!found || (other && other->first < found->first)) found = other;
  if (!found) return std::nullopt;
  set({found->second, bytes}, {.state = State::live, .tenant = tenant});
  return found->second;
}

void PackedSpace::give(std::size_t offset, const Claim& claim) {
  set({offset, blocks_.at(offset).bytes}, {.state = State::free, .claim = claim});
}

void PackedSpace::detain(std::size_t offset) {
  blocks_.at(offset).state = State::busy;
}

void PackedSpace::readmit(std::size_t offset, const Tenant& tenant) {
  Block& block = blocks_.at(offset);
  block.state = State::live;
  block.tenant = tenant;
}

void PackedSpace::ripen(StreamNumber stream, std::uint64_t freed) {
  const auto of_stream = free_.find(stream);
  if (of_stream == free_.end()) return;
  std::vector<Place> ripe;
  for (const auto& [bytes, offset] : of_stream->second)
    if (blocks_.at(offset).claim.freed <= freed) ripe.push_back({offset, bytes});
  for (const Place& place : ripe) set(place, {.state = State::free});
}

std::size_t PackedSpace::unmapped_in(std::size_t begin, std::size_t end) const {
  std::size_t granules = 0;
  for (auto block = at(begin); block != blocks_.end() && block->first < end; ++block) {
    if (block->second.state != State::unmapped) continue;
    const std::size_t from = std::max(begin, block->first) / granularity_;
    const std::size_t to = (std::min(end, block->first + block->second.bytes) + granularity_ - 1) / granularity_;
    granules += to - from;
  }
  return granules;
}

std::optional<PackedSpace::Window> PackedSpace::open(std::size_t bytes, StreamNumber stream) {
  struct Candidate {
    std::size_t offset, granules, extent;
  };
  std::optional<Candidate> chosen;
  const auto consider = [&](std::size_t offset, std::size_t extent) {
    const std::size_t granules = unmapped_in(offset, offset + bytes);
    if (!chosen || granules < chosen->granules || (granules == chosen->granules && extent < chosen->extent))
      chosen = {offset, granules, extent};
  };
  for (auto first = blocks_.begin(); first != blocks_.end();) {
    auto last = first;
    while (last != blocks_.end() && usable(last->second, stream)) ++last;
    const std::size_t end = last == first ? first->first : std::prev(last)->first + std::prev(last)->second.bytes;
    if (const std::size_t extent = end - first->first; extent >= bytes) {
      consider(first->first, extent);
      if (last != blocks_.end()) consider(end - bytes, extent);
    }
    first = last == first ? std::next(first) : last;
  }
  if (!chosen) return std::nullopt;

  Window window{{chosen->offset, bytes}, {chosen->offset, bytes}, {}, {}};
  if (at(chosen->offset)->second.state == State::unmapped) {
    const std::size_t begin = chosen->offset / granularity_ * granularity_;
    window.whole = {begin, window.place.end() - begin};
  }
  if (at(window.place.end() - 1)->second.state == State::unmapped)
    window.whole.bytes = (window.place.end() + granularity_ - 1) / granularity_ * granularity_ - window.whole.offset;
  const auto begin = split(window.whole.offset);
  const auto end = split(window.whole.end());
  for (auto each = begin; each != end; ++each) {
    window.before.emplace_back(each->first, each->second);
    if (each->second.state == State::unmapped) window.unmapped.push_back({each->first, each->second.bytes});
  }
  set(window.whole, {.state = State::busy});
  return window;
}

// What the window has beyond the allocation is in granules that had no memory.
void PackedSpace::let(const Window& window, const Tenant& tenant) {
  set(window.whole, {.state = State::free});
  set(window.place, {.state = State::live, .tenant = tenant});
}

void PackedSpace::close(const Window& window) {
  for (const auto& [offset, block] : window.before) set({offset, block.bytes}, block);
}

std::vector<Place> PackedSpace::free_chunks() const {
  std::vector<Place> found;
  const auto ripe = free_.find(everybody);
  if (ripe == free_.end()) return found;
  for (const auto& [bytes, offset] : ripe->second) {
    if (bytes < granularity_) continue;
    for (auto each = chunks_.lower_bound(offset); each != chunks_.end(); ++each) {
      if (each->first + each->second.bytes() > offset + bytes) break;
      found.push_back({each->first, each->second.bytes()});
    }
  }
  return found;
}

Chunk PackedSpace::take_chunk(std::size_t offset) {
  auto node = chunks_.extract(offset);
  set({offset, node.mapped().bytes()}, {.state = State::busy});
  return std::move(node.mapped());
}

void PackedSpace::put_back(std::size_t offset, Chunk&& chunk) {
  const Place place{offset, chunk.bytes()};
  chunks_.emplace(offset, std::move(chunk));
  set(place, {.state = State::free});
}

}  // namespace cuvmm::pool
