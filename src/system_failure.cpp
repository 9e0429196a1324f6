#include "system_failure.hpp"

#include <cerrno>
#include <system_error>

namespace cuvmm {

Failure system_failure(std::string_view call, std::string arguments, int error) {
  Failure failure;
  failure.call = call;
  failure.arguments = std::move(arguments);
  failure.reason = std::generic_category().message(error);
  if (error == EMFILE || error == ENFILE) {
    failure.kind = ErrorKind::out_of_descriptors;
    failure.rule =
        error == EMFILE ? "This process has no file descriptor left" : "The system has no file descriptor left";
    failure.way_out = "Close descriptors that are no longer needed, or raise the limit (ulimit -n)";
  } else if (error == ENOMEM) {
    failure.kind = ErrorKind::out_of_host_memory;
  }
  return failure;
}

}  // namespace cuvmm
