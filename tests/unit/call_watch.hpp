// A driver that remembers which of its calls failed.
#pragma once

#include <string>
#include <vector>

#include "driver/decorator.hpp"

namespace cuvmm::test {

// Notes every call, and those that did not answer success.
class CallWatch final : public driver::Decorator<CallWatch> {
 public:
  using Decorator::Decorator;

  template <driver::EntryPoint entry, class... Arguments>
  abi::CUresult around(Arguments... arguments) {
    const abi::CUresult result = forward<entry>(arguments...);
    calls.push_back(entry);
    if (result != abi::CUDA_SUCCESS) failing.emplace_back(driver::name(entry));
    return result;
  }

  std::vector<driver::EntryPoint> calls;
  std::vector<std::string> failing;
};

}  // namespace cuvmm::test
