#include "emulator/api/watched_launch.hpp"

#include <algorithm>

namespace cuvmm::emulator::api {
namespace {

// What of the pieces lies within [offset, offset + bytes) of them, and at which addresses.
void cut(std::vector<AliasTracker::Piece>& to, const std::vector<memory::Piece>& pieces, std::uint64_t address,
         std::uint64_t offset, std::uint64_t bytes) {
  std::uint64_t begin = 0;
  for (const memory::Piece& piece : pieces) {
    const std::uint64_t from = std::max(begin, offset);
    const std::uint64_t until = std::min(begin + piece.bytes, offset + bytes);
    if (from < until) to.push_back({address + from, {piece.file, piece.offset + from - begin, nullptr, until - from}});
    begin += piece.bytes;
  }
}

}  // namespace

AliasTracker::Access WatchedViews::access(std::size_t view, std::uint64_t offset, std::uint64_t bytes) const {
  AliasTracker::Access access;
  const KernelView& touched = views_.at(view);
  access.multicast = touched.multimem;
  cut(access.pieces, accesses_[view]->pieces(), touched.address, offset, bytes);
  for (const std::vector<memory::Piece>& replica : accesses_[view]->replicas())
    cut(access.pieces, replica, touched.address, offset, bytes);
  return access;
}

void WatchedViews::wrote(std::size_t view, std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  tell_of_last_write();
  last_write_ = access(view, offset, bytes);
}

void WatchedViews::reads(std::size_t view, std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  tell_of_last_write();
  auto wrong = tracker_.reads(launch_, access(view, offset, bytes));
  if (wrong && !finding_) finding_ = std::move(wrong);
}

void WatchedViews::alias_fence() {
  const std::lock_guard lock(mutex_);
  tracker_.alias_fence(launch_, last_write_ ? &*last_write_ : nullptr);
  last_write_.reset();
}

std::optional<std::string> WatchedViews::conclude() {
  const std::lock_guard lock(mutex_);
  tell_of_last_write();
  return finding_;
}

void WatchedViews::tell_of_last_write() {
  if (last_write_) tracker_.wrote(launch_, *last_write_);
  last_write_.reset();
}

}  // namespace cuvmm::emulator::api
