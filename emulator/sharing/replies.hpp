// What a reply of the broker is, and what a handle that is bytes holds: included by sharing/*.cpp alone.
#pragma once

#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <variant>

#include "emulator/broker/protocol.hpp"

namespace cuvmm::emulator::sharing {

template <class Content, class Handle>
void write(Handle* handle, const Content& content) {
  static_assert(sizeof(Content) <= sizeof(Handle));
  *handle = {};
  std::memcpy(handle, &content, sizeof content);
}

// Nothing if the handle holds something else.
template <class Content, class Handle>
std::optional<Content> read(const Handle& handle) {
  Content content;
  const Content expected;
  std::memcpy(static_cast<void*>(&content), &handle, sizeof content);
  if (std::memcmp(content.magic, expected.magic, sizeof content.magic) != 0) return std::nullopt;
  return content;
}

[[noreturn]] inline void throw_refusal(const broker::Refused& refused) {
  const int error = refused.why == broker::Refusal::file_limit || refused.why == broker::Refusal::no_descriptor
                        ? static_cast<int>(refused.detail)
                        : EPROTO;
  throw std::system_error(error, std::generic_category(), "the emulated machine's broker refuses");
}

// The reply of that type; any other one is a refusal that is not expected here.
template <class Expected>
const Expected& expect(const broker::Reply& reply) {
  if (const auto* const expected = std::get_if<Expected>(&reply)) return *expected;
  if (const auto* const refused = std::get_if<broker::Refused>(&reply)) throw_refusal(*refused);
  throw std::system_error(EPROTO, std::generic_category(), "the emulated machine's broker answers something else");
}

inline bool is(const broker::Reply& reply, broker::Refusal refusal) {
  const auto* const refused = std::get_if<broker::Refused>(&reply);
  return refused != nullptr && refused->why == refusal;
}

}  // namespace cuvmm::emulator::sharing
