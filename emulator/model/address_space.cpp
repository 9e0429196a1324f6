#include "emulator/model/address_space.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cuvmm::emulator::model {
namespace {

CUdeviceptr align_up(CUdeviceptr address, std::uint64_t alignment) {
  return (address + alignment - 1) & ~(alignment - 1);
}

}  // namespace

AddressSpace::AddressSpace(CUdeviceptr base, std::uint64_t bytes) : base_(base), bytes_(bytes) {
  free_[base] = bytes;
}

std::optional<CUdeviceptr> AddressSpace::take(std::uint64_t bytes, std::uint64_t alignment, CUdeviceptr hint) {
  if (hint != 0 && hint % alignment == 0 && take_at(hint, bytes)) return hint;
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    const CUdeviceptr address = align_up(piece->first, alignment);
    if (address < piece->first) continue;  // wrapped around
    const std::uint64_t skipped = address - piece->first;
    if (skipped > piece->second || bytes > piece->second - skipped) continue;
    carve(piece, address, bytes);
    return address;
  }
  return std::nullopt;
}

bool AddressSpace::take_at(CUdeviceptr address, std::uint64_t bytes) {
  auto after = free_.upper_bound(address);
  if (after == free_.begin()) return false;
  auto piece = std::prev(after);
  const std::uint64_t offset = address - piece->first;
  if (offset >= piece->second || bytes > piece->second - offset) return false;
  carve(piece, address, bytes);
  return true;
}

void AddressSpace::carve(Pieces::iterator piece, CUdeviceptr address, std::uint64_t bytes) {
  const CUdeviceptr begin = piece->first;
  const CUdeviceptr end = begin + piece->second;
  // What needs memory comes first, so that a failure leaves everything as it was.
  Pieces spare;
  spare.emplace(0, 0);
  if (spares_.size() == spares_.capacity()) spares_.reserve(2 * spares_.size() + 1);
  if (address + bytes < end) free_.emplace(address + bytes, end - (address + bytes));
  spares_.push_back(spare.extract(spare.begin()));
  if (begin < address)
    piece->second = address - begin;
  else
    free_.erase(piece);
}

void AddressSpace::give_back(CUdeviceptr address, std::uint64_t bytes) noexcept {
  Pieces::node_type piece = std::move(spares_.back());
  spares_.pop_back();
  auto after = free_.upper_bound(address);
  const bool joins_after = after != free_.end() && address + bytes == after->first;
  if (after != free_.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == address) {
      before->second += bytes;
      if (joins_after) {
        before->second += after->second;
        free_.erase(after);
      }
      return;
    }
  }
  if (joins_after) {
    bytes += after->second;
    free_.erase(after);
  }
  piece.key() = address;
  piece.mapped() = bytes;
  free_.insert(std::move(piece));
}

void AddressSpace::divide() {
  Pieces spare;
  spare.emplace(0, 0);
  spares_.reserve(spares_.size() + 1);
  spares_.push_back(spare.extract(spare.begin()));
}

std::uint64_t AddressSpace::free_at_begin() const {
  return free_.empty() || free_.begin()->first != base_ ? 0 : free_.begin()->second;
}

std::uint64_t AddressSpace::free_at_end() const {
  if (free_.empty()) return 0;
  const auto& [address, bytes] = *free_.rbegin();
  return address + bytes == end() ? bytes : 0;
}

std::uint64_t AddressSpace::largest_free_piece() const {
  std::uint64_t largest = 0;
  for (const auto& [address, bytes] : free_) largest = std::max(largest, bytes);
  return largest;
}

}  // namespace cuvmm::emulator::model
