// Failures of what the pool is made of, told as those of the call that the program made.
#pragma once

#include <string_view>
#include <utility>

#include "refusal.hpp"

namespace cuvmm::pool {

// Calls of the driver keep their names: what they answered is theirs.
[[gnu::cold]] inline Failure told_as(Failure failure, std::string_view call) {
  if (failure.call.find("::") != std::string::npos) failure.call = call;
  return failure;
}

// What the step answers; throws what it throws, told so.
template <class Step>
decltype(auto) telling_as(std::string_view call, Step&& step) {
  try {
    return std::forward<Step>(step)();
  } catch (const Error& error) {
    raise(told_as(error.failure(), call));
  }
}

}  // namespace cuvmm::pool
