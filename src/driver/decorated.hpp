// Decorators chosen by the environment.
#pragma once

#include <memory>

#include "driver/interface.hpp"

namespace cuvmm::driver {

// The driver with the decorators that the environment asks for, or the driver itself if it asks for none:
//   CUVMM_LIE=keep_released_memory            see parse_lies
//   CUVMM_INJECT_FAULT=cuMemMap:3:UNKNOWN     see parse_faults
//   CUVMM_RECORD=calls.txt                    appends a line for each call to that file
// The recording is the outermost, so that it shows what the caller sees, lies and injected faults included.
// Throws InvalidUse, naming the variable's text, if one of them cannot be read.
[[nodiscard]] std::shared_ptr<Interface> decorated_from_environment(std::shared_ptr<Interface> driver);

}  // namespace cuvmm::driver
