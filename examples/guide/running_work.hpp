// Work of a device that goes on until it is told to end, in place of a program's kernels. A program of yours would
// include cuda.h and call the driver or the CUDA runtime; these examples are built where there is neither, and so go
// through the library's own interface to the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <cuvmm/cuvmm.hpp>

#include "driver/call.hpp"

namespace guide {

using cuvmm::driver::call;
using cuvmm::driver::EntryPoint;

class RunningWork {
 public:
  // In a stream of the current context: waits, and then fills the first bytes of the range.
  explicit RunningWork(const cuvmm::MappedRange& range) : driver_(range.driver()) {
    call<EntryPoint::cuStreamCreate>(driver_.interface(), &stream_, 1U /* CU_STREAM_NON_BLOCKING */);
    call<EntryPoint::cuMemHostAlloc>(driver_.interface(), &word_, sizeof(std::uint32_t), 0U);
    std::atomic_ref(word()).store(0);
    call<EntryPoint::cuStreamWaitValue32>(driver_.interface(), stream_, reinterpret_cast<std::uintptr_t>(word_), 1U,
                                          1U /* CU_STREAM_WAIT_VALUE_EQ */);
    const unsigned char value = 7;
    call<EntryPoint::cuMemsetD8Async>(driver_.interface(), range.address().value, value, 4096U, stream_);
  }
  RunningWork(const RunningWork&) = delete;
  RunningWork& operator=(const RunningWork&) = delete;
  RunningWork(RunningWork&&) = delete;
  RunningWork& operator=(RunningWork&&) = delete;
  ~RunningWork() {
    end();
    driver_.interface().cuStreamDestroy(stream_);
    driver_.interface().cuMemFreeHost(word_);
  }

  [[nodiscard]] CUstream_st* stream() const { return stream_; }

  void end() {
    std::atomic_ref(word()).store(1);
    driver_.interface().cuStreamSynchronize(stream_);
  }

 private:
  std::uint32_t& word() { return *static_cast<std::uint32_t*>(word_); }

  cuvmm::Driver driver_;
  CUstream_st* stream_ = nullptr;
  void* word_ = nullptr;
};

}  // namespace guide
