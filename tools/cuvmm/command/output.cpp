#include "command/output.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace cuvmm::command {

void keep_standard_descriptors() {
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(each, F_GETFD) >= 0) continue;
    // The lowest number that is free, which is this one. Not for what the closed one would be used for, so that it
    // fails.
    static_cast<void>(::open("/dev/null", each == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

void write_out(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (written) return;
  throw OutputLost(fmt::format("Standard output cannot be written to ({}): what it was to take is lost.",
                               std::generic_category().message(errno)));
}

}  // namespace cuvmm::command
