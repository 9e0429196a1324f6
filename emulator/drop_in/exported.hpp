// What the exported functions of the library are made of.
#pragma once

#include <atomic>

#include "driver/abi.hpp"
#include "driver/interface.hpp"
#include "emulator/drop_in/process_driver.hpp"

#define CUVMM_EXPORT __attribute__((visibility("default")))

namespace cuvmm::emulator::drop_in {

// What the process's driver answers.
template <driver::EntryPoint entry, class... Arguments>
abi::CUresult call(Arguments... arguments) noexcept {
  return with_process_driver(
      [&](driver::Interface& driver) { return (driver.*driver::Traits<entry>::method)(arguments...); });
}

// The stream that the per-thread form of an entry point means.
inline abi::CUstream of_this_thread(abi::CUstream stream) noexcept {
  return stream == nullptr ? abi::per_thread_stream() : stream;
}

// Whether it was said that a symbol does nothing here.
using Told = std::atomic_flag;

// Answers NOT_SUPPORTED for the symbol. The first time it is said on standard error, with the reason if there is one.
abi::CUresult not_offered(const char* symbol, Told& told, const char* reason = nullptr) noexcept;

}  // namespace cuvmm::emulator::drop_in
