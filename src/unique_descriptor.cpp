#include "cuvmm/unique_descriptor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <system_error>

#include "cuvmm/error.hpp"
#include "refusal.hpp"

namespace cuvmm {

namespace {

void report_failed_close(int descriptor, int error) noexcept {
  try {
    report_cleanup_failure(
        invalid_use("close", fmt::format("descriptor = {}", descriptor),
                    "A descriptor is closed once, by its owner: " + std::generic_category().message(error),
                    "Look for another place that closes this descriptor"));
  } catch (const std::exception&) {
    report_cleanup_failure(Failure{});
  }
}

}  // namespace

UniqueDescriptor& UniqueDescriptor::operator=(UniqueDescriptor&& other) noexcept {
  if (this == &other) return *this;
  close();
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}

void UniqueDescriptor::close() noexcept {
  if (descriptor_ < 0) return;
  const int descriptor = std::exchange(descriptor_, -1);
  // Linux has closed it also where it was interrupted.
  if (::close(descriptor) != 0 && errno != EINTR) report_failed_close(descriptor, errno);
}

}  // namespace cuvmm
