#include "pool/span_space.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::pool {

namespace {

// An allocation may take a span that is larger by 1/128: so much it may waste to do without the driver.
constexpr std::size_t tolerance = 128;

}  // namespace

void SpanSpace::index(Spans::const_iterator span) {
  if (span->second.state == State::free) free_[span->second.claim.stream].emplace(span->second.bytes, span->first);
}

void SpanSpace::unindex(Spans::const_iterator span) {
  if (span->second.state == State::free) free_[span->second.claim.stream].erase({span->second.bytes, span->first});
}

void SpanSpace::insert(std::size_t offset, Span&& span) {
  index(spans_.emplace(offset, std::move(span)).first);
}

std::optional<std::pair<std::size_t, std::size_t>> SpanSpace::best(StreamNumber stream, std::size_t bytes) const {
  const auto of_stream = free_.find(stream);
  if (of_stream == free_.end()) return std::nullopt;
  const auto found = of_stream->second.lower_bound({bytes, 0});
  if (found == of_stream->second.end() || found->first > bytes + bytes / tolerance) return std::nullopt;
  return *found;
}

std::optional<std::size_t> SpanSpace::take(std::size_t bytes, const Tenant& tenant) {
  auto found = best(tenant.stream, bytes);
  const auto other = best(everybody, bytes);
  if (!found || (other && other->first < found->first)) found = other;
  if (!found) return std::nullopt;
  const auto span = spans_.find(found->second);
  unindex(span);
  span->second.state = State::live;
  span->second.tenant = tenant;
  return span->first;
}

std::optional<std::size_t> SpanSpace::take_part(std::size_t bytes, const Tenant& tenant) {
  for (const StreamNumber owner : {tenant.stream, everybody}) {
    for (auto each = free_[owner].lower_bound({bytes, 0}); each != free_[owner].end(); ++each) {
      const auto span = spans_.find(each->second);
      std::size_t count = 0, sum = 0;
      for (; sum < bytes; ++count) sum += span->second.chunks[count].bytes();
      if (sum > bytes + bytes / tolerance) continue;
      const std::size_t offset = span->first;
      add(offset, cut(span, count, false), tenant);
      return offset;
    }
  }
  return std::nullopt;
}

void SpanSpace::give(std::size_t offset, const Claim& claim) {
  const auto span = spans_.find(offset);
  span->second.state = State::free;
  span->second.claim = claim;
  index(span);
}

void SpanSpace::detain(std::size_t offset) {
  spans_.at(offset).state = State::busy;
}

void SpanSpace::readmit(std::size_t offset, const Tenant& tenant) {
  Span& span = spans_.at(offset);
  span.state = State::live;
  span.tenant = tenant;
}

void SpanSpace::ripen(StreamNumber stream, std::uint64_t freed) {
  const auto of_stream = free_.find(stream);
  if (of_stream == free_.end()) return;
  std::vector<std::size_t> ripe;
  for (const auto& each : of_stream->second)
    if (spans_.at(each.second).claim.freed <= freed) ripe.push_back(each.second);
  for (const std::size_t offset : ripe) {
    const auto span = spans_.find(offset);
    unindex(span);
    span->second.claim = {};
    index(span);
  }
}

SpanSpace::Spans::const_iterator SpanSpace::at(std::size_t offset) const {
  const auto next = spans_.upper_bound(offset);
  if (next == spans_.begin()) return spans_.end();
  const auto span = std::prev(next);
  return offset < span->first + span->second.bytes ? span : spans_.end();
}

// The lowest that fit: what lies behind stays in one piece.
std::optional<std::size_t> SpanSpace::take_addresses(std::size_t bytes) {
  for (const std::size_t room : {bytes, std::size_t{0}}) {
    const auto found = std::find_if(addresses_.begin(), addresses_.end(), [&](const auto& each) {
      return each.second >= bytes && each.second - bytes >= room;
    });
    if (found == addresses_.end()) continue;
    const std::size_t offset = found->first + room;
    take_addresses_at({offset, bytes});
    return offset;
  }
  return std::nullopt;
}

void SpanSpace::give_addresses(const Place& place) {
  auto made = addresses_.emplace(place.offset, place.bytes).first;
  if (const auto next = std::next(made); next != addresses_.end() && place.end() == next->first) {
    made->second += next->second;
    addresses_.erase(next);
  }
  if (made == addresses_.begin()) return;
  if (const auto before = std::prev(made); before->first + before->second == made->first) {
    before->second += made->second;
    addresses_.erase(made);
  }
}

void SpanSpace::add(std::size_t offset, std::vector<Chunk>&& chunks, const Tenant& tenant) {
  Span span{.chunks = std::move(chunks), .state = State::live, .tenant = tenant};
  for (const Chunk& each : span.chunks) span.bytes += each.bytes();
  insert(offset, std::move(span));
}

std::vector<Place> SpanSpace::free_chunks() const {
  std::vector<Place> found;
  const auto ripe = free_.find(everybody);
  if (ripe == free_.end()) return found;
  for (const auto& each : ripe->second) {
    std::size_t offset = each.second;
    for (const Chunk& chunk : spans_.at(offset).chunks) {
      found.push_back({offset, chunk.bytes()});
      offset += chunk.bytes();
    }
  }
  return found;
}

Chunk SpanSpace::take_chunk(std::size_t offset) {
  const auto found = std::prev(spans_.upper_bound(offset));
  const std::size_t begin = found->first;
  unindex(found);
  Span whole = std::move(found->second);
  spans_.erase(found);
  Span before{.bytes = offset - begin}, behind{};
  std::optional<Chunk> taken;
  std::size_t at = begin;
  for (Chunk& each : whole.chunks) {
    const std::size_t bytes = each.bytes();
    if (at == offset) {
      taken = std::move(each);
    } else if (at < offset) {
      before.chunks.push_back(std::move(each));
    } else {
      behind.bytes += bytes;
      behind.chunks.push_back(std::move(each));
    }
    at += bytes;
  }
  if (before.bytes != 0) insert(begin, std::move(before));
  if (behind.bytes != 0) insert(offset + taken->bytes(), std::move(behind));
  return std::move(*taken);
}

void SpanSpace::put_back(std::size_t offset, Chunk&& chunk) {
  Span span{.bytes = chunk.bytes()};
  span.chunks.push_back(std::move(chunk));
  insert(offset, std::move(span));
}

}  // namespace cuvmm::pool
