// A device that takes part in the tour: its primary context and the kernels in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "cuvmm/device.hpp"
#include "cuvmm/driver.hpp"
#include "driver/interface.hpp"
#include "tour/report.hpp"

namespace cuvmm::tour {

// Memory of the host that kernels of every device can reach. What a kernel leaves here the host reads as it is, so that
// looking at a result takes no copy by the driver. Freed at the end. Thread-safety: as bytes.
class ReachableHostMemory {
 public:
  // Needs a current context. Throws cuvmm::Error.
  ReachableHostMemory(const Driver& driver, std::size_t bytes);
  ReachableHostMemory(const ReachableHostMemory&) = delete;
  ReachableHostMemory& operator=(const ReachableHostMemory&) = delete;
  ~ReachableHostMemory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {static_cast<std::byte*>(pointer_), size_}; }

  // Its address for kernels.
  [[nodiscard]] abi::CUdeviceptr address() const noexcept { return address_; }

 private:
  Driver driver_;
  std::size_t size_;
  void* pointer_ = nullptr;
  abi::CUdeviceptr address_ = 0;
};

// Keeps the device's primary context for as long as it lives. All kernels run in the default stream, and each function
// returns when its work is done. Throws cuvmm::Error where a driver call fails. Thread-safety: for one thread.
class Gpu {
 public:
  Gpu(const Driver& driver, DeviceOrdinal ordinal);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] Location location() const noexcept { return device_.location(); }
  [[nodiscard]] int ordinal() const noexcept { return device_.ordinal().value; }

  // Makes the device's context the thread's current one.
  void make_current() const;

  // Waits for all work of its context, for destructors that take memory from under that work: unmapping does not wait.
  // A failure goes to the clean-up failure handler.
  void finish_work() const noexcept;

  // The free bytes of the device's memory, as the driver tells them.
  [[nodiscard]] std::uint64_t free_memory() const;

  // Starts cuvmm_fill over the range; what the launch and the wait for its end answered.
  [[nodiscard]] abi::CUresult try_fill(abi::CUdeviceptr destination, std::uint64_t bytes, std::uint64_t pattern);

  // Copies by cuvmm_copy. Throws cuvmm::Error if the kernel did not end well.
  void copy(abi::CUdeviceptr destination, abi::CUdeviceptr source, std::uint64_t bytes);

  // The checksum that cuvmm_checksum takes of the range, its first word counted as word `first_word`; no copy by the
  // driver takes part. `result` tells what the launch and the wait answered; the sum is 0 if that is no success.
  struct Sum {
    abi::CUresult result;
    std::uint64_t value;
  };
  [[nodiscard]] Sum try_checksum(abi::CUdeviceptr source, std::uint64_t bytes, std::uint64_t first_word);

  // Copies by cuvmm_alias to `written`, and returns the checksum of what the same kernel then sees at `read`. Throws
  // cuvmm::Error if the kernel did not end well.
  [[nodiscard]] std::uint64_t copy_and_checksum(abi::CUdeviceptr written, abi::CUdeviceptr source,
                                                abi::CUdeviceptr read, std::uint64_t bytes, std::uint64_t first_word);

  // Starts cuvmm_spin and cuvmm_copy in a stream of this device, and waits for neither. Throws cuvmm::Error.
  void start_spin(abi::CUstream stream, abi::CUdeviceptr flag, std::uint64_t most_polls);
  void start_copy(abi::CUstream stream, abi::CUdeviceptr destination, abi::CUdeviceptr source, std::uint64_t bytes);

  // cuvmm_checksum; throws cuvmm::Error if the kernel did not end well.
  [[nodiscard]] std::uint64_t checksum(abi::CUdeviceptr source, std::uint64_t bytes, std::uint64_t first_word);

  // Throws Unavailable if kernels of this build cannot run on this driver.
  void require_kernels() const;

  // Throws Unavailable if the device has too little free memory for a stop: two granules to map, and one, taken once,
  // for the kernels' results; in each of the other processes that take part, too.
  void require_room(std::size_t granularity, int other_processes = 0) const;

  // Throws Unavailable if the device has no virtual memory management.
  void require_virtual_memory() const;

 private:
  template <typename Parameters>
  abi::CUresult start(Parameters parameters, std::uint64_t elements, abi::CUstream stream);
  template <typename Parameters>
  abi::CUresult launch(Parameters parameters, std::uint64_t elements);
  template <typename Parameters>
  Sum summed(Parameters parameters);
  abi::CUfunction function(std::string_view kernel);
  void prepare_sum();
  void require_success(abi::CUresult result) const;

  Device device_;
  driver::Interface& interface_;
  abi::CUcontext context_ = nullptr;
  abi::CUmodule module_ = nullptr;  // loaded when a kernel is first needed
  abi::CUdeviceptr sum_ = 0;        // eight bytes of plain device memory, likewise
  std::optional<ReachableHostMemory> host_sum_;
};

}  // namespace cuvmm::tour
