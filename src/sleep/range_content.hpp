// Content of ranges, copied to where it is kept and back.
#pragma once

#include <span>

#include "sleep/content_copy.hpp"
#include "sleep/entry.hpp"

namespace cuvmm::sleep {

// Memory whose content is kept, and where a range has it mapped.
struct MappedContent {
  Entry* entry = nullptr;
  std::size_t offset = 0;
  const SleepingMemory* memory = nullptr;
};

// Copies all of it, each by the device that it lies on (memory of the host by one that may access it, or the CPU).
// Where that device has not the rights, it gets them for the time of the copy.
[[nodiscard]] Result<void> copy_content_of_ranges(const Driver& driver, std::span<const MappedContent> content,
                                                  Direction direction, const CopyOptions& options);

}  // namespace cuvmm::sleep
