#include "emulator/api/translated_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/multimem.hpp"

namespace cuvmm::emulator::api {
namespace {

// How much is found at once, where it is all there: the least that a mapping has.
constexpr std::uint64_t found_at_once = std::uint64_t{2} << 20;

}  // namespace

const std::byte* TranslatedMemory::read(std::uint64_t address, std::size_t bytes) {
  const Found& found = touch(address, bytes, {false, false});
  return found.places.front() + (address - found.range.address);
}

std::byte* TranslatedMemory::write(std::uint64_t address, std::size_t bytes) {
  const Found& found = touch(address, bytes, {false, true});
  return found.places.front() + (address - found.range.address);
}

MulticastWindow TranslatedMemory::read_multicast(std::uint64_t address, std::size_t bytes) {
  return window(address, bytes, false);
}

MulticastWindow TranslatedMemory::write_multicast(std::uint64_t address, std::size_t bytes) {
  return window(address, bytes, true);
}

MulticastWindow TranslatedMemory::window(std::uint64_t address, std::size_t bytes, bool write) {
  const Found& found = touch(address, bytes, {true, write});
  replicas_ = found.places;
  for (std::byte*& replica : replicas_) replica += address - found.range.address;
  return {replicas_, bytes};
}

// A write is told of with the next access, as WatchedViews does.
const TranslatedMemory::Found& TranslatedMemory::touch(std::uint64_t address, std::size_t bytes, Kind kind) {
  if (address % bytes != 0) {
    refusal_ = {CUDA_ERROR_MISALIGNED_ADDRESS, Rule::argument_valid,
                fmt::format("{:#x} is no multiple of the {} bytes that are touched there", address, bytes)};
    throw multimem::Fault(multimem::Fault::Kind::misaligned, refusal_.detail);
  }
  const Found& found = find(address, bytes, kind);
  const std::uint64_t offset = address - found.range.address;
  AliasTracker::Access access;
  access.multicast = kind.multicast;
  const auto cut = [&](const std::vector<memory::Piece>& pieces) {
    const memory::Piece& piece = pieces.front();
    if (piece.file != nullptr) access.pieces.push_back({address, {piece.file, piece.offset + offset, nullptr, bytes}});
  };
  if (!kind.multicast) cut(found.access.pieces());
  for (const std::vector<memory::Piece>& replica : found.access.replicas()) cut(replica);
  tell_of_last_write();
  if (kind.write) {
    wrote_ = true;
    last_write_ = std::move(access);
  } else if (auto wrong = machine_.aliases().reads(launch_, access); wrong && !finding_) {
    finding_ = std::move(wrong);
  }
  return found;
}

void TranslatedMemory::tell_of_last_write() {
  if (last_write_) machine_.aliases().wrote(launch_, *last_write_);
  last_write_.reset();
}

void TranslatedMemory::alias_fence() {
  machine_.aliases().alias_fence(launch_, last_write_ ? &*last_write_ : nullptr);
  last_write_.reset();
}

const TranslatedMemory::Found& TranslatedMemory::find(std::uint64_t address, std::size_t bytes, Kind kind) {
  auto& known = found_[kind];
  if (const auto behind = known.upper_bound(address); behind != known.begin()) {
    const Found& before = std::prev(behind)->second;
    if (before.range.address + before.range.bytes >= address + bytes) return before;
  }
  Found found;
  if (!find_exactly(around(address, bytes, kind), kind, found).ok()) {
    found = {};
    refusal_ = find_exactly({address, bytes}, kind, found);
    if (!refusal_.ok()) throw multimem::Fault(multimem::Fault::Kind::outside, refusal_.detail);
  }
  return known.insert_or_assign(found.range.address, std::move(found)).first->second;
}

// What lies around the address, and is likely to be there as a whole.
AddressRange TranslatedMemory::around(std::uint64_t address, std::size_t bytes, Kind kind) {
  const std::uint64_t begin = address / found_at_once * found_at_once;
  if (kind.multicast) return {begin, found_at_once};
  const auto allocation = machine_.address_range(address, who_.ordinal());
  if (!allocation || allocation->address > address || allocation->address + allocation->bytes < address + bytes)
    return {address, bytes};
  const std::uint64_t from = std::max<std::uint64_t>(begin, allocation->address);
  const std::uint64_t end = std::min<std::uint64_t>(begin + found_at_once, allocation->address + allocation->bytes);
  return {from, end - from};
}

// Refused as well where the bytes, of any device, do not lie in one place of the process.
Answer TranslatedMemory::find_exactly(const AddressRange& range, Kind kind, Found& found) {
  found.range = range;
  const auto& [address, bytes] = range;
  if (Answer answer = kind.multicast
                          ? machine_.access_multicast(address, bytes, who_, kind.write, found.access)
                          : machine_.access(address, bytes, who_, kind.write, AddressKind::kernel, found.access);
      !answer.ok())
    return answer;
  const auto take = [&](const std::vector<memory::Piece>& pieces) {
    const memory::Piece& piece = pieces.front();
    const auto place =
        piece.file == nullptr ? std::span(piece.host, piece.bytes) : piece.file->bytes(piece.offset, piece.bytes);
    found.places.push_back(place.data());
    return place.size() >= found.range.bytes;
  };
  bool whole = kind.multicast || take(found.access.pieces());
  for (const std::vector<memory::Piece>& replica : found.access.replicas()) whole = take(replica) && whole;
  if (whole) return {};
  return {CUDA_ERROR_ILLEGAL_ADDRESS, Rule::access_needed,
          fmt::format("{} bytes at {:#x} lie in several places", found.range.bytes, found.range.address)};
}

bool TranslatedMemory::forget() {
  tell_of_last_write();
  bool valid = true;
  for (const auto& [kind, known] : found_)
    for (const auto& [begin, found] : known)
      valid = valid && (kind.multicast ? machine_.still_bound(begin, found.range.bytes, who_, kind.write, found.access)
                                       : machine_.still_valid(begin, found.range.bytes, who_, kind.write,
                                                              AddressKind::kernel, found.access));
  found_.clear();
  return valid;
}

}  // namespace cuvmm::emulator::api
