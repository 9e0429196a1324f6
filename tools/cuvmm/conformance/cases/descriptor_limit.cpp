#include "conformance/cases/descriptor_limit.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <stdexcept>

namespace cuvmm::conformance {

void allow_no_more_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("getrlimit failed");
  // The limit is on descriptor numbers: all below it that are free must be filled first.
  limit.rlim_cur = 1024 < limit.rlim_max ? 1024 : limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("setrlimit failed");
  while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
  }
}

}  // namespace cuvmm::conformance
