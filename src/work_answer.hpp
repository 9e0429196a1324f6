// What a driver's code says about work of the device.
#pragma once

#include "driver/advice.hpp"

namespace cuvmm {

enum class WorkAnswer {
  done,     // SUCCESS
  open,     // not done, or no telling: ask again
  blocked,  // no telling within a host function
  over,     // the context is gone, and its work with it
  failed,   // the context is beyond repair, and its work over
  lost,     // the event was recorded in a capture behind our back, so it stands for no work
};

// Whether the process has no driver any more: it ends, or was forked from the one that had it, whose work is no
// business of its own.
[[nodiscard]] inline bool driver_is_gone(abi::CUresult result) noexcept {
  return result == abi::CUDA_ERROR_DEINITIALIZED || result == abi::CUDA_ERROR_NOT_INITIALIZED;
}

[[nodiscard]] inline WorkAnswer work_answer(driver::EntryPoint entry, abi::CUresult result) noexcept {
  switch (result) {
    case abi::CUDA_SUCCESS:
      return WorkAnswer::done;
    case abi::CUDA_ERROR_NOT_PERMITTED:
      return WorkAnswer::blocked;
    case abi::CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case abi::CUDA_ERROR_INVALID_CONTEXT:
    case abi::CUDA_ERROR_INVALID_HANDLE:
    case abi::CUDA_ERROR_DEINITIALIZED:
    case abi::CUDA_ERROR_NOT_INITIALIZED:
      return WorkAnswer::over;
    case abi::CUDA_ERROR_CAPTURED_EVENT:
    case abi::CUDA_ERROR_INVALID_VALUE:
      return WorkAnswer::lost;
    default:
      return driver::kind_of(entry, result, false) == ErrorKind::device_lost ? WorkAnswer::failed : WorkAnswer::open;
  }
}

// Whether a call that gives something of a context back failed because there is nothing left to give back.
[[nodiscard]] inline bool went_with_its_context(driver::EntryPoint entry, abi::CUresult result) noexcept {
  const WorkAnswer answer = work_answer(entry, result);
  return answer == WorkAnswer::over || answer == WorkAnswer::failed;
}

}  // namespace cuvmm
