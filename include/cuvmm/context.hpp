// The context that device work of a thread goes to.
#pragma once

#include <thread>

#include "cuvmm/device.hpp"

struct CUctx_st;

namespace cuvmm {

// Makes the primary context of a device current in the calling thread, as long as the object lives; then the context
// that was current before is so again. Virtual memory calls need no context; copies, memsets and kernels do. Create and
// destroy objects in one thread and in reverse order, as local variables are. Destruction never throws: a failure goes
// to the clean-up failure handler. (cuDevicePrimaryCtxRetain, cuCtxPushCurrent, cuCtxPopCurrent,
// cuDevicePrimaryCtxRelease)
class CurrentContext {
 public:
  explicit CurrentContext(const Device& device);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  [[nodiscard]] CUctx_st* handle() const noexcept {  // the driver's CUcontext
    return context_;
  }
  [[nodiscard]] const Device& device() const noexcept { return device_; }

  // Waits until the device has done all work of this context. Throws DeviceLost if some of it went wrong.
  void synchronize() const;

 private:
  Device device_;
  CUctx_st* context_ = nullptr;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace cuvmm
