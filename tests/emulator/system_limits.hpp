// Limits of the operating system, lowered for a test's sake.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace cuvmm::emulator::test {

// A resource limit for as long as it lives.
class Limit {
 public:
  Limit(__rlimit_resource_t resource, rlim_t most) : resource_(resource) {
    (void)::getrlimit(resource_, &before_);
    const rlimit lowered{most, before_.rlim_max};
    (void)::setrlimit(resource_, &lowered);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  ~Limit() { (void)::setrlimit(resource_, &before_); }

 private:
  __rlimit_resource_t resource_;
  rlimit before_{};
};

// Bytes, as RLIMIT_AS counts them.
inline rlim_t address_space_in_use() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmSize:")) return std::strtoull(line.c_str() + 7, nullptr, 10) * 1024;
  return 0;
}

// The lowest number that is free, from which RLIMIT_NOFILE leaves none.
inline rlim_t descriptors_in_use() {
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  return static_cast<rlim_t>(next);
}

}  // namespace cuvmm::emulator::test
