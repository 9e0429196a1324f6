// How the emulated driver's entry points answer: included by api/*.cpp alone.
#pragma once

#include <new>
#include <system_error>
#include <utility>

#include "emulator/api/emulated_driver.hpp"

namespace cuvmm::emulator::api {

template <class Work>
CUresult EmulatedDriver::answer(Work&& work) noexcept {
  try {
    return conclude(std::forward<Work>(work)());
  } catch (const std::bad_alloc&) {
    return conclude(Answer(CUDA_ERROR_OUT_OF_MEMORY, Rule::create_capacity, "the process has no memory left"));
  } catch (const std::system_error& error) {
    return conclude(Answer(CUDA_ERROR_OPERATING_SYSTEM, Rule::operating_system, error.what()));
  }
}

template <class Work>
CUresult EmulatedDriver::initialised(Work&& work) noexcept {
  return answer([&]() -> Answer {
    if (Answer refused = check_initialised(); !refused.ok()) return refused;
    return work();
  });
}

template <class Work>
CUresult EmulatedDriver::with_context(Work&& work) noexcept {
  return initialised([&]() -> Answer {
    Context* context = nullptr;
    if (Answer refused = current_context(&context); !refused.ok()) return refused;
    return work(*context);
  });
}

}  // namespace cuvmm::emulator::api
