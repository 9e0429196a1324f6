// A context that a few driver calls need.
#pragma once

#include "clean_up.hpp"
#include "driver/interface.hpp"

namespace cuvmm {

// Makes the context current in the calling thread, if it is not, as long as the object lives.
class MadeCurrent {
 public:
  MadeCurrent(driver::Interface& interface, abi::CUcontext context) : interface_(interface) {
    abi::CUcontext current = nullptr;
    answer_ = interface.cuCtxGetCurrent(&current);
    if (answer_ != abi::CUDA_SUCCESS || current == context) return;
    answer_ = interface.cuCtxPushCurrent(context);
    pushed_ = answer_ == abi::CUDA_SUCCESS;
  }
  ~MadeCurrent() {
    abi::CUcontext popped = nullptr;
    if (pushed_) clean_up<driver::EntryPoint::cuCtxPopCurrent>(interface_, &popped);
  }
  MadeCurrent(const MadeCurrent&) = delete;
  MadeCurrent& operator=(const MadeCurrent&) = delete;
  MadeCurrent(MadeCurrent&&) = delete;
  MadeCurrent& operator=(MadeCurrent&&) = delete;

  // SUCCESS, or why the context is not current.
  [[nodiscard]] abi::CUresult answer() const noexcept { return answer_; }

 private:
  driver::Interface& interface_;
  abi::CUresult answer_ = abi::CUDA_SUCCESS;
  bool pushed_ = false;
};

}  // namespace cuvmm
