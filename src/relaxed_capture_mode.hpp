// Driver calls that captures of other streams would forbid.
#pragma once

#include <exception>

#include "clean_up.hpp"
#include "driver/interface.hpp"

namespace cuvmm {

// Lets the calling thread make calls that an open capture forbids and is invalidated by, as asking for an event is
// (STREAM_CAPTURE_UNSUPPORTED): its own captures' and other threads'. Puts the thread's former mode back at its end.
class RelaxedCaptureMode {
 public:
  explicit RelaxedCaptureMode(driver::Interface& interface)
      : interface_(interface), answer_(interface.cuThreadExchangeStreamCaptureMode(&mode_)) {}
  ~RelaxedCaptureMode() {
    if (answer_ == abi::CUDA_SUCCESS)
      clean_up<driver::EntryPoint::cuThreadExchangeStreamCaptureMode>(interface_, &mode_);
  }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode(RelaxedCaptureMode&&) = delete;
  RelaxedCaptureMode& operator=(RelaxedCaptureMode&&) = delete;

  // SUCCESS, or why the thread's mode is as it was.
  [[nodiscard]] abi::CUresult answer() const noexcept { return answer_; }

 private:
  driver::Interface& interface_;
  abi::CUstreamCaptureMode mode_ = abi::CU_STREAM_CAPTURE_MODE_RELAXED;
  abi::CUresult answer_;
};

}  // namespace cuvmm
