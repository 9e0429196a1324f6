#include "pool/packed_space.hpp"

#include <algorithm>
#include <bit>

namespace cuvmm::pool {

namespace {

constexpr std::size_t smallest_region = std::size_t{512} << 10;

}  // namespace

PackedSpace::PackedSpace(std::size_t bytes, std::size_t granularity, std::size_t regions)
    : granularity_(granularity), regions_(regions), region_bytes_(bytes / regions / granularity * granularity) {
  for (std::size_t region = 0; region < regions; ++region) {
    const std::size_t begin = region * region_bytes_;
    blocks_.emplace(begin, Block{.bytes = region + 1 == regions ? bytes - begin : region_bytes_});
  }
}

// The sizes above the first region's: the power of two that they lie above, and which quarter of it.
std::size_t PackedSpace::region_for(std::size_t bytes) const noexcept {
  if (bytes <= smallest_region) return 0;
  const std::size_t below = bytes - 1;
  const auto power = static_cast<std::size_t>(std::bit_width(below / smallest_region) - 1);
  const std::size_t quarter = (below >> (std::bit_width(below) - 3)) & 3U;
  return std::min(4 * power + quarter + 1, regions_ - 1);
}

std::size_t PackedSpace::region_at(std::size_t offset) const noexcept {
  return std::min(offset / region_bytes_, regions_ - 1);
}

PackedSpace::Hole PackedSpace::hole(Blocks::const_iterator block) const noexcept {
  return {region_at(block->first), block->second.bytes, block->first};
}

bool PackedSpace::alike(const Block& a, const Block& b) noexcept {
  if (a.state != b.state) return false;
  return a.state == State::unmapped || (a.state == State::free && a.claim.stream == b.claim.stream);
}

bool PackedSpace::usable(const Block& block, StreamNumber stream) noexcept {
  return block.state == State::unmapped ||
         (block.state == State::free && (block.claim.stream == everybody || block.claim.stream == stream));
}

std::size_t PackedSpace::splinters(const Hole& hole) const noexcept {
  const std::size_t first = (hole.offset + granularity_ - 1) / granularity_;
  const std::size_t last = (hole.offset + hole.bytes) / granularity_;
  return hole.bytes - (last > first ? (last - first) * granularity_ : 0);
}

void PackedSpace::index(Blocks::const_iterator block) {
  if (block->second.state != State::free) return;
  free_[block->second.claim.stream].insert(hole(block));
  splinter_bytes_ += splinters(hole(block));
}

void PackedSpace::unindex(Blocks::const_iterator block) {
  if (block->second.state != State::free) return;
  free_[block->second.claim.stream].erase(hole(block));
  splinter_bytes_ -= splinters(hole(block));
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
  const auto joins = [&](Blocks::iterator first, Blocks::iterator second) {
    return !begins_region(second->first) && alike(first->second, second->second);
  };
  if (const auto next = std::next(block); next != blocks_.end() && joins(block, next)) block = join(block, next);
  if (block != blocks_.begin() && joins(std::prev(block), block)) block = join(std::prev(block), block);
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

std::optional<PackedSpace::Hole> PackedSpace::best(StreamNumber stream, std::size_t region, std::size_t bytes) const {
  const auto of_stream = free_.find(stream);
  if (of_stream == free_.end()) return std::nullopt;
  const auto found = of_stream->second.lower_bound({region, bytes, 0});
  if (found == of_stream->second.end() || found->region != region) return std::nullopt;
  return *found;
}

std::optional<PackedSpace::Hole> PackedSpace::best_of_both(StreamNumber stream, std::size_t region,
                                                           std::size_t bytes) const {
  const auto own = best(stream, region, bytes), other = best(everybody, region, bytes);
  return !own || (other && other->bytes < own->bytes) ? other : own;
}

std::optional<std::size_t> PackedSpace::take(std::size_t bytes, const Tenant& tenant) {
  const auto found = best_of_both(tenant.stream, region_for(bytes), bytes);
  if (!found) return std::nullopt;
  set({found->offset, bytes}, {.state = State::live, .tenant = tenant});
  return found->offset;
}

std::optional<std::size_t> PackedSpace::take_anywhere(std::size_t bytes, const Tenant& tenant) {
  std::optional<Hole> found;
  for (std::size_t region = 0; region < regions_; ++region)
    if (const auto one = best_of_both(tenant.stream, region, bytes); one && (!found || one->bytes < found->bytes))
      found = one;
  if (!found) return std::nullopt;
  set({found->offset, bytes}, {.state = State::live, .tenant = tenant});
  return found->offset;
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
  for (const Hole& each : of_stream->second)
    if (blocks_.at(each.offset).claim.freed <= freed) ripe.push_back({each.offset, each.bytes});
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

std::optional<PackedSpace::Fit> PackedSpace::find(std::size_t bytes, StreamNumber stream, std::size_t region) const {
  std::optional<Fit> chosen;
  const auto consider = [&](std::size_t offset, std::size_t extent) {
    const std::size_t missing = unmapped_in(offset, offset + bytes) * granularity_;
    if (!chosen || missing < chosen->missing || (missing == chosen->missing && extent < chosen->extent))
      chosen = {{offset, bytes}, missing, extent};
  };
  const auto limit = region + 1 == regions_ ? blocks_.end() : blocks_.find((region + 1) * region_bytes_);
  for (auto first = blocks_.find(region * region_bytes_); first != limit;) {
    auto last = first;
    while (last != limit && usable(last->second, stream)) ++last;
    const std::size_t end = last == first ? first->first : std::prev(last)->first + std::prev(last)->second.bytes;
    if (const std::size_t extent = end - first->first; extent >= bytes) {
      consider(first->first, extent);
      if (last != limit) consider(end - bytes, extent);
    }
    first = last == first ? std::next(first) : last;
  }
  return chosen;
}

PackedSpace::Window PackedSpace::open(const Place& place) {
  Window window{place, place, {}, {}};
  if (at(place.offset)->second.state == State::unmapped) {
    const std::size_t begin = place.offset / granularity_ * granularity_;
    window.whole = {begin, place.end() - begin};
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
  for (const auto& [region, bytes, offset] : ripe->second) {
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
