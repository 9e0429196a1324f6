// A vector in device memory that grows without being copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuvmm/device_buffer.hpp"

namespace cuvmm {

// As std::vector, for elements that are bytes to the device: size, capacity, reserve, resize, append, shrink. Growing
// maps more memory behind the elements that there are; nothing is copied, kernels go on to read them, and data() stays
// until the reserved addresses are used up. All that is said of DeviceBuffer holds for it: when it moves, how long
// former pointers live, what is waited for, what is thrown, and thread-safety.
//
//   auto values = DeviceVector<float>::create(driver);  // addresses for as much as the device has memory
//   values.append(more);                                // from a std::vector<float>, say
//   kernel<<<...>>>(values.data(), values.size());
//
// Counts are of elements.
template <class T>
class DeviceVector {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "elements are copied byte by byte");

 public:
  using value_type = T;

  // options.capacity is in bytes of addresses.
  [[nodiscard]] static DeviceVector create(const Driver& driver, const MappedRangeOptions& options = {}) {
    return DeviceVector(DeviceBuffer::create(driver, options));
  }
  [[nodiscard]] static Result<DeviceVector> try_create(const Driver& driver, const MappedRangeOptions& options = {}) {
    auto buffer = DeviceBuffer::try_create(driver, options);
    if (!buffer) return buffer.failure();
    return DeviceVector(std::move(buffer).value());
  }

  void reserve(std::size_t count) { buffer_.reserve(bytes(count)); }
  void resize(std::size_t count) { buffer_.resize(bytes(count)); }  // new elements have no defined value
  void clear() noexcept { buffer_.clear(); }
  void shrink_to_fit() { buffer_.shrink_to_fit(); }

  // --- Copies: see DeviceBuffer for those with a stream.

  void append(std::span<const T> elements) { buffer_.append(std::as_bytes(elements)); }
  std::optional<CaptureId> append(std::span<const T> elements, CUstream_st* stream) {
    return buffer_.append(std::as_bytes(elements), stream);
  }
  void append_from_device(const T* source, std::size_t count) {
    buffer_.append_from_device(address_of(source), bytes(count));
  }
  std::optional<CaptureId> append_from_device(const T* source, std::size_t count, CUstream_st* stream) {
    return buffer_.append_from_device(address_of(source), bytes(count), stream);
  }
  void write(std::size_t first, std::span<const T> elements) { buffer_.write(bytes(first), std::as_bytes(elements)); }
  std::optional<CaptureId> write(std::size_t first, std::span<const T> elements, CUstream_st* stream) {
    return buffer_.write(bytes(first), std::as_bytes(elements), stream);
  }
  void read(std::size_t first, std::span<T> elements) const {
    buffer_.read(bytes(first), std::as_writable_bytes(elements));
  }
  std::optional<CaptureId> read(std::size_t first, std::span<T> elements, CUstream_st* stream) {
    return buffer_.read(bytes(first), std::as_writable_bytes(elements), stream);
  }
  [[nodiscard]] std::vector<T> to_host() const {
    std::vector<T> elements(size());
    read(0, elements);
    return elements;
  }

  // --- What it is.

  [[nodiscard]] T* data() const noexcept { return buffer_.address().template as_pointer<T>(); }
  [[nodiscard]] DeviceAddress address() const noexcept { return buffer_.address(); }
  [[nodiscard]] std::size_t size() const noexcept { return buffer_.size() / sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] std::size_t capacity() const noexcept { return buffer_.capacity() / sizeof(T); }
  // How many elements data() can have before it has to become another one.
  [[nodiscard]] std::size_t address_capacity() const noexcept { return buffer_.address_capacity() / sizeof(T); }

  // Rights, uses, former addresses, and all that fails as a value.
  [[nodiscard]] DeviceBuffer& buffer() noexcept { return buffer_; }
  [[nodiscard]] const DeviceBuffer& buffer() const noexcept { return buffer_; }

 private:
  explicit DeviceVector(DeviceBuffer buffer) noexcept : buffer_(std::move(buffer)) {}

  static std::size_t bytes(std::size_t count) { return DeviceBuffer::bytes_of(count, sizeof(T)); }
  static DeviceAddress address_of(const T* pointer) noexcept {
    return DeviceAddress(reinterpret_cast<std::uintptr_t>(pointer));
  }

  DeviceBuffer buffer_;
};

}  // namespace cuvmm
