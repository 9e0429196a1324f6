// What a stop and its other processes say to each other: a request is a word and what belongs to it, an answer a text.
#pragma once

#include <string>

#include "cuvmm/sharing/message.hpp"

namespace cuvmm::tour {

inline constexpr sharing::MessageKind request_message = sharing::first_free_kind;
inline constexpr sharing::MessageKind answer_message = sharing::first_free_kind + 1;

[[nodiscard]] inline std::string text_of(const sharing::Message& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

}  // namespace cuvmm::tour
