// How the emulated driver's entry points answer: included by api/*.cpp alone.
#pragma once

#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "emulator/api/emulated_driver.hpp"
#include "emulator/memory/file_limit.hpp"

namespace cuvmm::emulator::api {

// The answer where what has to be pointed at is at a null pointer.
inline Answer null_output(const char* name) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, std::string(name) + " must not be null"};
}

template <class Work>
CUresult EmulatedDriver::answer_of(Work&& work, const char* call) noexcept {
  try {
    const Answer answer = std::forward<Work>(work)();
    if (answer.crashes && machine_.configuration().profile.behaviour.crash_on_dead_handles) std::raise(SIGSEGV);
    return conclude(call, answer.code, answer.rule, answer.detail.c_str());
  } catch (const memory::FileLimitReached& error) {
    return conclude(call, CUDA_ERROR_OUT_OF_MEMORY, Rule::operating_system, error.what());
  } catch (const std::bad_alloc&) {
    return conclude(call, CUDA_ERROR_OUT_OF_MEMORY, Rule::create_capacity, "the process has no memory left");
  } catch (const std::system_error& error) {
    return conclude(call, CUDA_ERROR_OPERATING_SYSTEM, Rule::operating_system, error.what());
  } catch (const std::exception& error) {
    return conclude(call, CUDA_ERROR_UNKNOWN, Rule::callback_throws, error.what());
  } catch (...) {
    return conclude(call, CUDA_ERROR_UNKNOWN, Rule::callback_throws, "an exception of unknown type");
  }
}

// A call within which the last reference to the driver went, in an operation that the call ran, ends the driver last.
template <class Work>
CUresult EmulatedDriver::answer(Work&& work, const char* call) noexcept {
  const CUresult code = answer_of(std::forward<Work>(work), call);
  execution::end_if_due();
  return code;
}

template <class Work>
CUresult EmulatedDriver::initialised(Work&& work, const char* call) noexcept {
  const auto checked = [&]() -> Answer {
    if (Answer refused = check_initialised(); !refused.ok()) return refused;
    return work();
  };
  return answer(checked, call);
}

// For calls that look at a handle or a pointer before they look at the driver's state.
template <class Work>
CUresult EmulatedDriver::initialised_else(CUresult otherwise, Work&& work, const char* call) noexcept {
  const auto checked = [&]() -> Answer {
    Answer refused = check_initialised();
    if (refused.code == CUDA_ERROR_NOT_INITIALIZED) refused.code = otherwise;
    if (!refused.ok()) return refused;
    return work();
  };
  return answer(checked, call);
}

// For calls that need no driver, before cuInit; once it was called, it is as with all others.
template <class Work>
CUresult EmulatedDriver::without_driver(Work&& work, const char* call) noexcept {
  const auto checked = [&]() -> Answer {
    if (Answer refused = check_initialised(); !refused.ok() && refused.rule != Rule::driver_initialised) return refused;
    return work();
  };
  return answer(checked, call);
}

template <class Work>
CUresult EmulatedDriver::with_context(Work&& work, const char* call) noexcept {
  const auto checked = [&]() -> Answer {
    ActiveContext context;
    if (Answer refused = current_context(&context); !refused.ok()) return refused;
    return work(std::as_const(context));
  };
  return initialised(checked, call);
}

}  // namespace cuvmm::emulator::api
