// Copies between ordinary memory and device memory that are done when the function returns.
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <type_traits>

#include "cuvmm/driver.hpp"
#include "cuvmm/mapped_range.hpp"
#include "cuvmm/mapping.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm {

// These need a current context (CurrentContext) whose device may write, respectively read, all the bytes. They throw
// InvalidUse if it may not, or if the bytes do not lie in the mapping or in the content of the range, and DeviceLost if
// earlier work went wrong. They wait until the bytes have arrived, so that unmapping right afterwards is safe.
// Thread-safe; a range must not be changed meanwhile. (cuMemcpyHtoD, cuMemcpyDtoH)
void copy_bytes_to_device(const Driver& driver, DeviceAddress destination, std::span<const std::byte> source);
void copy_bytes_from_device(const Driver& driver, std::span<std::byte> destination, DeviceAddress source);
void copy_bytes_to_device(const Mapping& mapping, std::size_t offset, std::span<const std::byte> source);
void copy_bytes_from_device(std::span<std::byte> destination, const Mapping& mapping, std::size_t offset);
void copy_bytes_to_device(const MappedRange& range, std::size_t offset, std::span<const std::byte> source);
void copy_bytes_from_device(std::span<std::byte> destination, const MappedRange& range, std::size_t offset);

// What can be copied byte by byte: a std::vector<float>, a std::string, an array of plain structures.
template <class Range>
concept CopyableRange = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::is_trivially_copyable_v<std::ranges::range_value_t<Range>>;

// Copies all elements of `source` to `offset` bytes into the mapping, or into the range.
template <CopyableRange Range>
void copy_to_device(const Mapping& mapping, std::size_t offset, const Range& source) {
  copy_bytes_to_device(mapping, offset, std::as_bytes(std::span(std::ranges::data(source), std::ranges::size(source))));
}
template <CopyableRange Range>
void copy_to_device(const MappedRange& range, std::size_t offset, const Range& source) {
  copy_bytes_to_device(range, offset, std::as_bytes(std::span(std::ranges::data(source), std::ranges::size(source))));
}

// Fills all elements of `destination` from `offset` bytes into the mapping, or into the range.
template <CopyableRange Range>
void copy_from_device(Range& destination, const Mapping& mapping, std::size_t offset) {
  copy_bytes_from_device(
      std::as_writable_bytes(std::span(std::ranges::data(destination), std::ranges::size(destination))), mapping,
      offset);
}
template <CopyableRange Range>
void copy_from_device(Range& destination, const MappedRange& range, std::size_t offset) {
  copy_bytes_from_device(
      std::as_writable_bytes(std::span(std::ranges::data(destination), std::ranges::size(destination))), range, offset);
}

}  // namespace cuvmm
