// The kernels that reports launch.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuvmm/driver.hpp"
#include "driver/interface.hpp"
#include "gpu/kernel_signatures.hpp"

namespace cuvmm::bench {

// A stream of the current context. What was given to it is waited for at the end. For one thread.
class Stream {
 public:
  explicit Stream(const Driver& driver);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  Stream(Stream&&) = delete;
  Stream& operator=(Stream&&) = delete;
  ~Stream();

  void wait() const;
  [[nodiscard]] abi::CUstream handle() const noexcept { return stream_; }

 private:
  driver::Interface& calls_;
  abi::CUstream stream_ = nullptr;
};

// The project's kernels in the current context. For one thread.
class Kernels {
 public:
  // Throws Unavailable where this build has no kernels for the driver.
  explicit Kernels(const Driver& driver);
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  Kernels(Kernels&&) = delete;
  Kernels& operator=(Kernels&&) = delete;
  ~Kernels();

  void read(const gpu::ReadParameters& parameters, abi::CUstream stream) const;
  void copy(const gpu::CopyParameters& parameters, abi::CUstream stream) const;
  void fill(const gpu::FillParameters& parameters, abi::CUstream stream) const;

 private:
  template <class Parameters>
  void launch(Parameters parameters, const gpu::LaunchShape& shape, abi::CUstream stream) const;

  driver::Interface& calls_;
  abi::CUmodule module_ = nullptr;
};

// Events before and after work of a stream, and the time between them as the device sees it. For one thread.
class DeviceTimer {
 public:
  explicit DeviceTimer(const Driver& driver);
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;
  DeviceTimer(DeviceTimer&&) = delete;
  DeviceTimer& operator=(DeviceTimer&&) = delete;
  ~DeviceTimer();

  // Waits for the work.
  template <class Work>
  double milliseconds(abi::CUstream stream, Work&& work) const {
    start(stream);
    work();
    return stop(stream);
  }

 private:
  void start(abi::CUstream stream) const;
  [[nodiscard]] double stop(abi::CUstream stream) const;

  driver::Interface& calls_;
  abi::CUevent before_ = nullptr;
  abi::CUevent after_ = nullptr;
};

// Plain device memory of cuMemAlloc. For one thread.
class PlainMemory {
 public:
  PlainMemory(const Driver& driver, std::size_t bytes);
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;
  PlainMemory(PlainMemory&&) = delete;
  PlainMemory& operator=(PlainMemory&&) = delete;
  ~PlainMemory();

  [[nodiscard]] abi::CUdeviceptr address() const noexcept { return address_; }

 private:
  driver::Interface& calls_;
  abi::CUdeviceptr address_ = 0;
};

}  // namespace cuvmm::bench
