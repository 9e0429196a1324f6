// Driver calls of destructors.
#pragma once

#include <exception>

#include "cuvmm/error.hpp"
#include "driver/call.hpp"

namespace cuvmm {

// Makes the call; a failure goes to the clean-up failure handler.
template <driver::EntryPoint entry, class... Arguments>
void clean_up(driver::Interface& interface, Arguments... arguments) noexcept {
  try {
    const Result<void> result = driver::try_call<entry>(interface, arguments...);
    if (!result) report_cleanup_failure(result.failure());
  } catch (const std::exception&) {
    report_cleanup_failure(Failure{});  // no memory left to say what failed; that something did is said all the same
  }
}

}  // namespace cuvmm
