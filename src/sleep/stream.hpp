// Streams and events of the library's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "clean_up.hpp"
#include "cuvmm/units.hpp"
#include "driver/call.hpp"

namespace cuvmm::sleep {

// Is told of a stream whose work may go on, since the driver did not tell its end: what that work uses has to stay, and
// so does the stream. Throws nothing.
using LeftBehind = std::function<void(abi::CUstream)>;

// A stream of the current context. What was given to it is done when it is gone, or is left behind.
class Stream {
 public:
  [[nodiscard]] static Result<Stream> create(driver::Interface& interface, LeftBehind left_behind) {
    abi::CUstream stream = nullptr;
    if (auto made =
            driver::try_call<driver::EntryPoint::cuStreamCreate>(interface, &stream, abi::CU_STREAM_NON_BLOCKING);
        !made)
      return made.failure();
    return Stream(interface, stream, std::move(left_behind));
  }
  Stream(Stream&& other) noexcept
      : interface_(other.interface_),
        stream_(std::exchange(other.stream_, nullptr)),
        left_behind_(std::move(other.left_behind_)),
        finished_(other.finished_) {}
  Stream& operator=(Stream&&) = delete;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (stream_ == nullptr) return;
    if (!finished_ && !finishes_now()) {
      left_behind_(stream_);
      return;
    }
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
  Stream(driver::Interface& interface, abi::CUstream stream, LeftBehind left_behind) noexcept
      : interface_(interface), stream_(stream), left_behind_(std::move(left_behind)) {}

  // After something failed: whether its work is over now. What fails is reported.
  bool finishes_now() noexcept {
    try {
      if (const auto waited = finish(); !waited) {
        Failure failure = waited.failure();
        if (!finished_) failure.reason = "a copy of content may still be at work, so all that it uses stays";
        report_cleanup_failure(failure);
      }
    } catch (const std::exception&) {
      report_cleanup_failure(Failure{});  // no memory left to say what failed
    }
    return finished_;
  }

  driver::Interface& interface_;
  abi::CUstream stream_;
  LeftBehind left_behind_;
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
