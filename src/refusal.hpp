// Failures that the library finds by itself.
#pragma once

#include <string>
#include <string_view>

#include "cuvmm/error.hpp"

namespace cuvmm {

// `rule_id`: where the rule is one of the rule book.
[[gnu::cold]] inline Failure invalid_use(std::string_view call, std::string arguments, std::string rule,
                                         std::string way_out, std::string_view rule_id = {}) {
  Failure failure;
  failure.kind = ErrorKind::invalid_use;
  failure.call = call;
  failure.arguments = std::move(arguments);
  failure.rule_ids = rule_id;
  failure.rule = std::move(rule);
  failure.way_out = std::move(way_out);
  return failure;
}

// Of a driver that reports success with an answer that cannot be.
[[gnu::cold]] inline Failure nonsense(std::string_view call, std::string_view answer) {
  Failure failure;
  failure.call = call;
  failure.rule = "The driver answered success, and " + std::string(answer);
  failure.way_out = "Update the driver, or ask the maker of what stands in for it";
  return failure;
}

// Whether there was not enough memory, wherever it was to lie.
inline bool is_shortage(const Failure& failure) noexcept {
  return failure.kind == ErrorKind::out_of_device_memory || failure.kind == ErrorKind::out_of_host_memory;
}

// For an owner that owns nothing any more.
[[gnu::cold]] inline Failure owns_nothing(std::string_view call, std::string_view what) {
  return invalid_use(call, std::string(what), "It owns nothing: it was moved from, released or given out",
                     "Use an owner until then only, or assign another to it");
}

// What the pointer of an owner points to; throws InvalidUse where it owns nothing any more.
template <class Pointer>
[[nodiscard]] auto& owned(const Pointer& pointer, std::string_view call, std::string_view what) {
  if (!pointer) [[unlikely]]
    raise(owns_nothing(call, what));
  return *pointer;
}

}  // namespace cuvmm
