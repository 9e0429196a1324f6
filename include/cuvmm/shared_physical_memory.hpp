// Physical memory that several ranges may have mapped.
#pragma once

#include <memory>

#include "cuvmm/physical_memory.hpp"

namespace cuvmm {

class PhysicalSource;

// A share of one allocation: copies are of the same memory, so that it can lie behind several addresses (virtual
// aliasing, guide 4.16.5.3). With the last share the memory goes back to the source that it came from, or is released
// if it came from none; mappings that other owners made of it keep it alive beyond that. An empty one shares nothing.
//
// Thread-safety: as a std::shared_ptr.
class SharedPhysicalMemory {
 public:
  SharedPhysicalMemory() noexcept = default;

  // Makes memory shareable that no source knows: imported, adopted or created by hand. Of a moved-from one it is empty.
  explicit SharedPhysicalMemory(PhysicalMemory memory)
      : memory_(memory.state_ ? std::make_shared<const PhysicalMemory>(std::move(memory)) : nullptr) {}

  // These two throw InvalidUse if it is empty.
  [[nodiscard]] const PhysicalMemory& memory() const {
    if (!memory_) raise_empty();
    return *memory_;
  }
  [[nodiscard]] const MemoryProperties& properties() const { return memory().properties(); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_ ? memory_->size() : 0; }  // bytes; 0 if it is empty

  explicit operator bool() const noexcept { return memory_ != nullptr; }
  friend bool operator==(const SharedPhysicalMemory&, const SharedPhysicalMemory&) noexcept = default;  // same memory

  // How many shares there are: a hint, where other threads copy them.
  [[nodiscard]] long shares() const noexcept { return memory_.use_count(); }

 private:
  friend class PhysicalSource;
  [[noreturn]] static void raise_empty();
  explicit SharedPhysicalMemory(std::shared_ptr<const PhysicalMemory> memory) noexcept : memory_(std::move(memory)) {}

  std::shared_ptr<const PhysicalMemory> memory_;
};

}  // namespace cuvmm
