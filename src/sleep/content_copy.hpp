// Copies between devices and backups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuvmm/device.hpp"
#include "sleep/backup.hpp"
#include "sleep/stream.hpp"

namespace cuvmm::sleep {

// Bytes of a device and where they are kept.
struct Piece {
  DeviceAddress address{};
  Backup* backup = nullptr;
  std::uint64_t at = 0;  // in the backup
  std::size_t bytes = 0;
};

enum class Direction : unsigned char { to_backup, from_backup };

struct CopyOptions {
  std::size_t staging_bytes = 0;
  unsigned threads = 1;
};

// Copies all pieces with that device, which may access them, and returns when it is done. Pinned backups are copied
// from and to by the device itself; others through a little pinned memory, by several threads. Some pieces may have
// been copied where it fails, and some may still be where `left_behind` was told so, by any thread: then the bytes and
// pinned backups have to stay. Disturbs no capture.
[[nodiscard]] Result<void> copy_content(const Device& device, std::span<const Piece> pieces, Direction direction,
                                        const CopyOptions& options, const LeftBehind& left_behind);

// The same by the CPU, for memory that was granted to the host.
[[nodiscard]] Result<void> copy_content_by_cpu(std::span<const Piece> pieces, Direction direction);

}  // namespace cuvmm::sleep
