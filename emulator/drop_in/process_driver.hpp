// The one emulated driver of this process.
#pragma once

#include <new>
#include <utility>

#include "driver/interface.hpp"

namespace cuvmm::emulator::drop_in {

// The driver that cuInit made; before that one that answers every call as a driver that is not initialised does. It is
// never destroyed: threads, and static objects that end late, may call it until the process is gone. In a forked child
// it is its parent's, which answers NOT_INITIALIZED. Thread-safe. Throws if there is no memory for the latter driver.
[[nodiscard]] driver::Interface& process_driver();

// cuInit: makes the driver from CUVMM_EMULATOR and CUVMM_EMULATOR_CONFIG as they are at the first call that succeeds.
// Settings that make no sense are told on standard error and leave a machine without devices: NO_DEVICE. In a forked
// child of a process that has a driver: NOT_INITIALIZED. Thread-safe, and safe in a process that is forked meanwhile.
[[nodiscard]] abi::CUresult initialise(unsigned flags) noexcept;

// The driver's place, as driver::Interface tells it, once cuInit has made it; else null.
[[nodiscard]] const char* process_place(int* node) noexcept;

// Why the thread's last call to that driver failed; null where there is none, or no memory to tell it.
[[nodiscard]] const char* process_explanation() noexcept;

// Runs `work(driver) -> CUresult` on the process's driver.
template <class Work>
abi::CUresult with_process_driver(Work&& work) noexcept {
  try {
    return std::forward<Work>(work)(process_driver());
  } catch (const std::bad_alloc&) {
    return abi::CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return abi::CUDA_ERROR_OPERATING_SYSTEM;
  }
}

}  // namespace cuvmm::emulator::drop_in
