// The message that hands handles over.
#pragma once

#include <vector>

#include "cuvmm/sharing/handle_exchange.hpp"

namespace cuvmm::sharing {

inline constexpr MessageKind handles_message = 0xffff;  // far from the kinds that programs count from 16

// The handles in a message, whose descriptors they take.
[[nodiscard]] Result<std::vector<HandleOfMemory>> handles_in(Message& message);

}  // namespace cuvmm::sharing
