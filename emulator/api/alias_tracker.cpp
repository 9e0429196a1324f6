#include "emulator/api/alias_tracker.hpp"

#include <fmt/format.h>

namespace cuvmm::emulator::api {

AliasTracker::Launch AliasTracker::begin(int device) {
  const std::lock_guard lock(mutex_);
  running_[next_].device = device;
  return next_++;
}

void AliasTracker::end(Launch launch) noexcept {
  const std::lock_guard lock(mutex_);
  const auto ended = running_.extract(launch);
  if (ended.empty()) return;
  for (const File file : ended.mapped().written) {
    const auto writes = writes_.find(file);
    if (writes == writes_.end()) continue;  // others wrote over all of it
    writes->second.clear_if([&](const Write& write) { return write.launch == launch; });
    if (writes->second.empty()) writes_.erase(writes);
  }
}

void AliasTracker::wrote(Launch launch, const Access& access) {
  const std::lock_guard lock(mutex_);
  note(launch, access, running_.at(launch));
}

void AliasTracker::note(Launch launch, const Access& access, Running& writer) {
  for (const Piece& piece : access.pieces) {
    if (piece.bytes.file == nullptr) continue;
    const std::uint64_t begin = piece.bytes.offset, end = begin + piece.bytes.bytes;
    writer.written.insert(piece.bytes.file);
    writes_[piece.bytes.file].set(begin, end, Write{launch, piece.address - begin, access.multicast, fences_});
  }
}

bool AliasTracker::lacks_fence(const Running& reader, const Piece& piece, bool multicast, const Write& write) const {
  if (write.alias == piece.address - piece.bytes.offset) return false;
  const auto writer = running_.find(write.launch);
  if (writer == running_.end() || writer->second.last_fence > write.fences) return false;
  if (writer->second.device != reader.device && !write.multicast && !multicast) return false;
  return reader.last_fence <= write.fences;
}

std::optional<std::string> AliasTracker::reads(Launch launch, const Access& access) {
  const std::lock_guard lock(mutex_);
  const Running& reader = running_.at(launch);
  std::optional<std::string> wrong;
  for (const Piece& piece : access.pieces) {
    const auto writes = writes_.find(piece.bytes.file);
    if (writes == writes_.end()) continue;
    const std::uint64_t first = piece.bytes.offset;
    const auto look = [&](std::uint64_t begin, std::uint64_t, const Write& write) {
      if (!lacks_fence(reader, piece, access.multicast, write)) return true;
      wrong = fmt::format("device {} reads {:#x}{}, which device {} wrote at {:#x}{}, without one", reader.device,
                          piece.address + begin - first, access.multicast ? " by multimem" : "",
                          running_.at(write.launch).device, write.alias + begin, write.multicast ? " by multimem" : "");
      return false;
    };
    writes->second.for_each_in(first, first + piece.bytes.bytes, look);
    if (wrong) return wrong;
  }
  return wrong;
}

void AliasTracker::alias_fence(Launch launch, const Access* written) {
  const std::lock_guard lock(mutex_);
  Running& fencing = running_.at(launch);
  if (written != nullptr) note(launch, *written, fencing);
  fencing.last_fence = ++fences_;
}

}  // namespace cuvmm::emulator::api
