#include "sharing/descriptor_facts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "refusal.hpp"
#include "system_failure.hpp"

namespace cuvmm::sharing {

namespace {

constexpr int first_beyond_standard_streams = 3;

}  // namespace

std::string what_it_is(int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return errno == EBADF ? "not open" : "of a kind that the system does not tell";
  if (S_ISSOCK(facts.st_mode)) return "a socket";
  if (S_ISFIFO(facts.st_mode)) return "a pipe";
  if (S_ISDIR(facts.st_mode)) return "a directory";
  if (S_ISREG(facts.st_mode)) return "a regular file";
  if (S_ISCHR(facts.st_mode) || S_ISBLK(facts.st_mode)) return "a device file";
  return "an anonymous file";
}

Result<UniqueDescriptor> duplicate(int descriptor) {
  UniqueDescriptor copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, first_beyond_standard_streams));
  if (copy) return copy;
  if (errno == EBADF)
    return invalid_use("fcntl(F_DUPFD_CLOEXEC)", fmt::format("descriptor = {}", descriptor),
                       "The descriptor is not open",
                       "Pass a descriptor that is open in this process; numbers of other processes mean nothing here");
  return system_failure("fcntl(F_DUPFD_CLOEXEC)", fmt::format("descriptor = {}", descriptor), errno);
}

Result<UniqueDescriptor> made_safe(UniqueDescriptor descriptor) {
  if (descriptor.get() < first_beyond_standard_streams) return duplicate(descriptor.get());
  const int flags = ::fcntl(descriptor.get(), F_GETFD);
  if (flags >= 0 && (flags & FD_CLOEXEC) == 0) (void)::fcntl(descriptor.get(), F_SETFD, flags | FD_CLOEXEC);
  return descriptor;
}

}  // namespace cuvmm::sharing
