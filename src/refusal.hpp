// Failures that the library finds by itself.
#pragma once

#include <string>
#include <string_view>

#include "cuvmm/error.hpp"

namespace cuvmm {

[[gnu::cold]] inline Failure invalid_use(std::string_view call, std::string arguments, std::string rule,
                                         std::string way_out) {
  Failure failure;
  failure.kind = ErrorKind::invalid_use;
  failure.call = call;
  failure.arguments = std::move(arguments);
  failure.rule = std::move(rule);
  failure.way_out = std::move(way_out);
  return failure;
}

}  // namespace cuvmm
