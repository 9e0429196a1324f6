// What the emulated driver's parts say to a call: the driver's code and, where that is a refusal, the rule behind it.
#pragma once

#include <string>
#include <utility>

#include "driver/abi.hpp"
#include "emulator/rule.hpp"

namespace cuvmm::emulator {

// `detail` says what was wrong in this very call, with the numbers that matter.
struct [[nodiscard]] Answer {
  abi::CUresult code = abi::CUDA_SUCCESS;
  Rule rule{};
  std::string detail;
  bool crashes = false;  // the real driver brings the process down here

  Answer() = default;
  Answer(abi::CUresult refusal, Rule broken, std::string what) : code(refusal), rule(broken), detail(std::move(what)) {}

  // What breaks no rule: work that was asked about is pending (NOT_READY), or cannot advance (LAUNCH_TIMEOUT).
  [[nodiscard]] static Answer of_no_rule(abi::CUresult code) {
    Answer answer;
    answer.code = code;
    return answer;
  }

  [[nodiscard]] bool ok() const noexcept { return code == abi::CUDA_SUCCESS; }
};

}  // namespace cuvmm::emulator
