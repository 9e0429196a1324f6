// What is known of the memory of ranges that sleep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuvmm/mapped_range.hpp"
#include "sleep/backup.hpp"

namespace cuvmm::sleep {

// One allocation that was given back and is to come again; several places share it where it was mapped several times.
struct SleepingMemory {
  MemoryProperties properties{};
  std::size_t bytes = 0;
  std::shared_ptr<PhysicalSource> source{};

  std::size_t content = 0;           // so many of its first bytes belong to the content of a range
  std::shared_ptr<Backup> backup{};  // null: they are discarded
  std::uint64_t at = 0;              // where they are in the backup

  // Memory that is there all the same: given back it was not, or only in part of its places.
  SharedPhysicalMemory memory{};
  bool intact = false;  // its bytes are those that it had
};

struct Place {
  std::size_t offset = 0;  // in its range
  std::shared_ptr<SleepingMemory> memory{};
  bool mapped = false;  // it is mapped there, though the range sleeps: that could not be undone
};

}  // namespace cuvmm::sleep
