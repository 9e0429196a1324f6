#include "sharing/socket_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "backoff.hpp"
#include "refusal.hpp"
#include "sharing/descriptor_facts.hpp"
#include "system_failure.hpp"

namespace cuvmm::sharing {

namespace {

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

constexpr int directory_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

Result<UniqueDescriptor> open_private(const std::string& directory) {
  const std::string argument = fmt::format("directory = {}", directory);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return system_failure("mkdir", argument, errno);
  UniqueDescriptor opened(::open(directory.c_str(), directory_flags));
  if (!opened) return system_failure("open", argument, errno);
  struct stat facts {};
  if (::fstat(opened.get(), &facts) != 0) return system_failure("fstat", argument, errno);
  if (facts.st_uid == ::geteuid() && (facts.st_mode & 077) == 0) return opened;
  return invalid_use(
      "DescriptorListener::listen",
      fmt::format("{}, of user {} with mode {:o}", argument, facts.st_uid, facts.st_mode & 07777),
      "The directory of a socket is its user's and open to nobody else (mode 0700)",
      "Use a directory of its own, which is made if it is missing, or SocketAddress::in_private_directory");
}

}  // namespace

Result<UniqueDescriptor> lock_directory_of(const std::string& path, const Deadline& deadline) {
  auto directory = open_private(directory_of(path));
  if (!directory) return directory;
  Backoff backoff;
  while (::flock(directory->get(), LOCK_EX | LOCK_NB) != 0) {
    const std::string argument = fmt::format("directory = {}", directory_of(path));
    if (errno != EWOULDBLOCK && errno != EINTR) return system_failure("flock", argument, errno);
    if (deadline.passed()) {
      Failure failure = system_failure("flock", argument, EWOULDBLOCK);
      failure.kind = ErrorKind::timed_out;
      failure.reason = "another process holds the directory's lock";
      return failure;
    }
    backoff.pause(deadline.time());
  }
  return directory;
}

UniqueDescriptor try_lock_directory_of(const std::string& path) noexcept {
  try {
    UniqueDescriptor directory(::open(directory_of(path).c_str(), directory_flags));
    Backoff backoff;
    const auto patience = Backoff::Clock::now() + std::chrono::seconds(1);  // others hold it for a few calls only
    while (directory && ::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) {
      if (Backoff::Clock::now() >= patience) return UniqueDescriptor();
      backoff.pause(patience);
    }
    return directory;
  } catch (const std::exception&) {
    return UniqueDescriptor();
  }
}

}  // namespace cuvmm::sharing
