// How one attempt at running an operation ended.
#pragma once

#include <string>
#include <utility>

#include "driver/abi.hpp"

namespace cuvmm::emulator::execution {

struct [[nodiscard]] Outcome {
  enum class State {
    done,      // finished; the stream goes on with its next operation
    again,     // not finished (a spinning kernel, a value that has not come): tried again while other streams go on
    advanced,  // not finished either, but further than before: what it waits for next may come at once
    short_of_memory,  // not begun, for want of the process's memory: tried again, and a fault if that lasts
    fault,            // failed; `code` becomes the sticky error of the context
  };

  // Whether the operation is to be tried again.
  [[nodiscard]] bool unfinished() const noexcept {
    return state == State::again || state == State::advanced || state == State::short_of_memory;
  }

  State state = State::done;
  abi::CUresult code = abi::CUDA_SUCCESS;
  std::string why{};

  static Outcome done() { return {}; }
  static Outcome again() { return {State::again, abi::CUDA_SUCCESS, {}}; }
  static Outcome advanced() { return {State::advanced, abi::CUDA_SUCCESS, {}}; }
  static Outcome short_of_memory() { return {State::short_of_memory, abi::CUDA_SUCCESS, {}}; }
  static Outcome fault(abi::CUresult code, std::string why) { return {State::fault, code, std::move(why)}; }
};

}  // namespace cuvmm::emulator::execution
