// An array over the memory of several devices and of the host.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuvmm/copy.hpp"
#include "cuvmm/stitched_memory.hpp"

namespace cuvmm {

// `size()` elements behind one pointer, in memory of several places; all that is said of StitchedMemory holds for it.
//
//   auto weights = StitchedArray<float>::create(driver, count, {.locations = {device0, device1}});
//   for (const auto& part : weights.parts_at(device0))             // what is local to device 0
//     kernel<<<...>>>(weights.data() + part.first, part.count);
//
// Counts are of elements. An element that begins in one place and ends in the next belongs to the first.
template <class T>
class StitchedArray {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "elements are copied byte by byte");

 public:
  using value_type = T;

  struct Part {
    Location location{};
    std::size_t first = 0;
    std::size_t count = 0;

    friend bool operator==(const Part&, const Part&) noexcept = default;
  };

  // Throws as StitchedMemory::create. The pieces of a cyclic layout are in bytes.
  [[nodiscard]] static StitchedArray create(const Driver& driver, std::size_t count, const StitchedOptions& options) {
    return try_create(driver, count, options).value();
  }
  [[nodiscard]] static Result<StitchedArray> try_create(const Driver& driver, std::size_t count,
                                                        const StitchedOptions& options) {
    // More than there can be stays more, and is refused below.
    auto memory =
        StitchedMemory::try_create(driver, count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T), options);
    if (!memory) return memory.failure();
    return StitchedArray(std::move(memory).value());
  }

  [[nodiscard]] T* data() const noexcept { return memory_.address().template as_pointer<T>(); }
  [[nodiscard]] DeviceAddress address() const noexcept { return memory_.address(); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.size() / sizeof(T); }

  // All parts in order: together all elements.
  [[nodiscard]] std::vector<Part> parts() const { return in_elements(memory_.parts()); }
  [[nodiscard]] std::vector<Part> parts_at(const Location& location) const {
    return in_elements(memory_.parts_at(location));
  }
  [[nodiscard]] Location location_of(std::size_t index) const {
    return memory_.location_at(index < size() ? index * sizeof(T) : memory_.size());
  }

  // Copies that are done when they return; they need a current context (CurrentContext) whose device may access all of
  // the array. Throw InvalidUse for elements beyond the end.
  void write(std::size_t first, std::span<const T> elements) {
    copy_bytes_to_device(memory_.range(), offset_of(first), std::as_bytes(elements));
  }
  void read(std::size_t first, std::span<T> elements) const {
    copy_bytes_from_device(std::as_writable_bytes(elements), memory_.range(), offset_of(first));
  }

  // Rights, uses, warnings, and all that is counted in bytes.
  [[nodiscard]] StitchedMemory& memory() noexcept { return memory_; }
  [[nodiscard]] const StitchedMemory& memory() const noexcept { return memory_; }

 private:
  explicit StitchedArray(StitchedMemory memory) noexcept : memory_(std::move(memory)) {}

  std::size_t offset_of(std::size_t first) const noexcept {
    return first <= size() ? first * sizeof(T) : memory_.range().size() + 1;
  }
  static std::size_t first_from(std::size_t offset) noexcept { return (offset + sizeof(T) - 1) / sizeof(T); }
  static std::vector<Part> in_elements(const std::vector<StitchedPart>& parts) {
    std::vector<Part> made;
    made.reserve(parts.size());
    for (const StitchedPart& each : parts) {
      const std::size_t first = first_from(each.offset);
      const std::size_t end = first_from(each.offset + each.bytes);
      if (end > first) made.push_back({each.location, first, end - first});
    }
    return made;
  }

  StitchedMemory memory_;
};

}  // namespace cuvmm
