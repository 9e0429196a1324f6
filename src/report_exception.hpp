// Exceptions of the program's own functions, where they cannot go on.
#pragma once

#include <exception>
#include <string_view>

#include "cuvmm/error.hpp"

namespace cuvmm {

// Passes the exception that is being handled, of whatever type, to the clean-up failure handler. For use in a handler.
inline void report_current_exception(std::string_view call) noexcept {
  try {
    Failure failure;
    failure.call = call;
    failure.way_out = "Let it catch its exceptions";
    try {
      throw;
    } catch (const Error& error) {
      failure = error.failure();
    } catch (const std::exception& error) {
      failure.rule = error.what();
    } catch (...) {
      failure.rule = "It threw something that is no std::exception";
    }
    report_cleanup_failure(failure);
  } catch (...) {
    report_cleanup_failure(Failure{});  // no memory left to say what it was
  }
}

}  // namespace cuvmm
