// Exceptions that nobody can catch.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "cuvmm/error.hpp"

namespace cuvmm {

// What is known of the exception that is being handled, of whatever type. For use in a handler.
inline Failure failure_of_current_exception() {
  Failure failure;
  try {
    throw;
  } catch (const Error& error) {
    failure = error.failure();
  } catch (const std::exception& error) {
    failure.rule = error.what();
  } catch (...) {
    failure.rule = "Something was thrown that is no std::exception";
  }
  return failure;
}

// Passes the exception that is being handled to the clean-up failure handler. `call`: what it came from, where it does
// not say so itself.
inline void report_current_exception(std::string_view call) noexcept {
  try {
    Failure failure = failure_of_current_exception();
    if (failure.call.empty()) failure.call = call;
    report_cleanup_failure(failure);
  } catch (...) {
    report_cleanup_failure(Failure{});  // no memory left to say what it was
  }
}

// The same for one that a callback of the program threw, as what it is. `arguments` answers those of the callback, in
// words.
template <class Arguments>
void report_exception_of_callback(std::string_view callback, Arguments&& arguments) noexcept {
  try {
    Failure failure = failure_of_current_exception();
    failure.callback = std::string(callback) + "(" + arguments() + ")";
    if (failure.way_out.empty()) failure.way_out = "Let the callback catch its exceptions";
    report_cleanup_failure(failure);
  } catch (...) {
    Failure failure;
    failure.callback = "a callback";  // which fits without an allocation
    report_cleanup_failure(failure);
  }
}

}  // namespace cuvmm
