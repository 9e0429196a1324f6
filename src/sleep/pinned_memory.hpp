// Pinned host memory of the library's own.
#pragma once

#include <cstddef>
#include <span>

#include "cuvmm/device.hpp"
#include "cuvmm/result.hpp"

namespace cuvmm::sleep {

// Host memory that all devices copy from and to at the speed of the link (cuMemHostAlloc, portable; cuMemFreeHost).
class PinnedMemory {
 public:
  // In the device's primary context. Failures: OutOfHostMemory, and others as the driver fails.
  [[nodiscard]] static Result<PinnedMemory> allocate(const Device& device, std::size_t bytes);

  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();

  [[nodiscard]] std::byte* data() const noexcept { return bytes_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

 private:
  PinnedMemory(Device device, std::span<std::byte> bytes) noexcept : device_(std::move(device)), bytes_(bytes) {}

  Device device_;
  std::span<std::byte> bytes_;
};

}  // namespace cuvmm::sleep
