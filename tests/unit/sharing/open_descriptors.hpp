// How many descriptors this process has open, and a limit on them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>

namespace cuvmm::test {

// Without the one by which they are listed.
inline std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count - 1;
}

// As long as it lives the process can open `left` descriptors more, whatever numbers are free.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(unsigned left) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    // The limit is on numbers, so that gaps among them have to be counted.
    rlim_t number = 0;
    for (unsigned free = 0;; ++number) {
      if (::fcntl(static_cast<int>(number), F_GETFD) >= 0) continue;
      if (free == left) break;
      ++free;
    }
    while (::fcntl(static_cast<int>(number), F_GETFD) >= 0) ++number;
    rlimit limit = before_;
    limit.rlim_cur = number;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace cuvmm::test
