#include "conformance/sequences/call.hpp"

#include <fmt/format.h>

#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {

std::string text(const Call& call) {
  std::string written{call.operation->name};
  written += '(';
  std::string_view names = call.operation->parameters;
  for (std::size_t index = 0; !names.empty(); ++index) {
    const std::string_view name = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const std::int64_t value = call[index];
    written +=
        fmt::format("{}{}={}{:#x}", index == 0 ? "" : ", ", name, value < 0 ? "-" : "", value < 0 ? -value : value);
  }
  return written + ')';
}

void CallChecksum::add(const Call& call) {
  for (const char character : text(call)) {
    value_ ^= static_cast<unsigned char>(character);
    value_ *= 16777619U;
  }
}

}  // namespace cuvmm::conformance
