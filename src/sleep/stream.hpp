// Streams and events of the library's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "clean_up.hpp"
#include "cuvmm/units.hpp"
#include "driver/call.hpp"

namespace cuvmm::sleep {

// A stream of the current context. What was given to it is done when it is gone.
class Stream {
 public:
  [[nodiscard]] static Result<Stream> create(driver::Interface& interface) {
    abi::CUstream stream = nullptr;
    if (auto made =
            driver::try_call<driver::EntryPoint::cuStreamCreate>(interface, &stream, abi::CU_STREAM_NON_BLOCKING);
        !made)
      return made.failure();
    return Stream(interface, stream);
  }
  Stream(Stream&& other) noexcept : interface_(other.interface_), stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (stream_ == nullptr) return;
    if (!finished_) clean_up<driver::EntryPoint::cuStreamSynchronize>(interface_, stream_);
    clean_up<driver::EntryPoint::cuStreamDestroy>(interface_, stream_);
  }

  Result<void> copy_to_host(std::byte* host, DeviceAddress device, std::size_t bytes) {
    finished_ = false;
    return driver::try_call<driver::EntryPoint::cuMemcpyDtoHAsync>(interface_, host, device.value, bytes, stream_);
  }
  Result<void> copy_to_device(DeviceAddress device, const std::byte* host, std::size_t bytes) {
    finished_ = false;
    return driver::try_call<driver::EntryPoint::cuMemcpyHtoDAsync>(interface_, device.value, host, bytes, stream_);
  }
  Result<void> fill(DeviceAddress device, std::uint8_t value, std::size_t bytes) {
    finished_ = false;
    return driver::try_call<driver::EntryPoint::cuMemsetD8Async>(interface_, device.value, value, bytes, stream_);
  }
  Result<void> finish() {
    auto waited = driver::try_call<driver::EntryPoint::cuStreamSynchronize>(interface_, stream_);
    // Of a lost context nothing is done any more.
    finished_ = waited || waited.failure().kind == ErrorKind::device_lost;
    return waited;
  }
  [[nodiscard]] abi::CUstream handle() const noexcept { return stream_; }

 private:
  Stream(driver::Interface& interface, abi::CUstream stream) noexcept : interface_(interface), stream_(stream) {}

  driver::Interface& interface_;
  abi::CUstream stream_;
  bool finished_ = true;
};

class Event {
 public:
  [[nodiscard]] static Result<Event> create(driver::Interface& interface) {
    abi::CUevent event = nullptr;
    if (auto made =
            driver::try_call<driver::EntryPoint::cuEventCreate>(interface, &event, abi::CU_EVENT_DISABLE_TIMING);
        !made)
      return made.failure();
    return Event(interface, event);
  }
  Event(Event&& other) noexcept : interface_(other.interface_), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) clean_up<driver::EntryPoint::cuEventDestroy>(interface_, event_);
  }

  Result<void> record(const Stream& stream) {
    return driver::try_call<driver::EntryPoint::cuEventRecord>(interface_, event_, stream.handle());
  }
  Result<void> wait() { return driver::try_call<driver::EntryPoint::cuEventSynchronize>(interface_, event_); }

 private:
  Event(driver::Interface& interface, abi::CUevent event) noexcept : interface_(interface), event_(event) {}

  driver::Interface& interface_;
  abi::CUevent event_;
};

}  // namespace cuvmm::sleep
