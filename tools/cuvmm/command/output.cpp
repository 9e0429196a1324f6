#include "command/output.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace cuvmm::command {

void write_out(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (written) return;
  throw OutputLost(fmt::format("Standard output cannot be written to ({}): what it was to take is lost.",
                               std::generic_category().message(errno)));
}

}  // namespace cuvmm::command
