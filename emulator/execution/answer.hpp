// What a call to the execution engine answers: the driver's code, and the rule behind a refusal.
#pragma once

#include <string>

#include "driver/abi.hpp"

namespace cuvmm::emulator::execution {

// `rule` says, for people, which rule a refused call broke and what would mend it; it is empty on success.
struct [[nodiscard]] Answer {
  abi::CUresult code = abi::CUDA_SUCCESS;
  std::string rule{};

  [[nodiscard]] bool ok() const noexcept { return code == abi::CUDA_SUCCESS; }
};

}  // namespace cuvmm::emulator::execution
