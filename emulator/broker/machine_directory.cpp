#include "emulator/broker/machine_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

namespace cuvmm::emulator::broker {
namespace {

using memory::FileDescriptor;

constexpr const char* lock_name = "lock";
constexpr ::mode_t nobody_else = 0700;

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Whether it was not there.
bool make(const std::string& path) {
  if (::mkdir(path.c_str(), nobody_else) == 0) return true;
  if (errno != EEXIST) throw_errno(fmt::format("cannot make the directory '{}' of an emulated machine", path));
  return false;
}

// Nothing if it is not there.
FileDescriptor opened(const std::string& path) {
  FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
    throw_errno(fmt::format("cannot open the directory '{}' of an emulated machine", path));
  if (!directory && errno != ENOENT)
    throw std::system_error(
        ENOTDIR, std::generic_category(),
        fmt::format(
            "'{}' is no directory: an emulated machine needs one of its own; remove it, or name another machine",
            path));
  return directory;
}

void check_private(const std::string& path, const FileDescriptor& directory) {
  struct stat status {};
  if (::fstat(directory.get(), &status) != 0) throw_errno(path);
  if (status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    throw std::system_error(
        EACCES, std::generic_category(),
        fmt::format("the directory '{}' belongs to user {} and has mode {:o}; that of an emulated machine belongs to "
                    "its user ({}) and lets nobody else in (mode 700): change that, or name another machine",
                    path, status.st_uid, status.st_mode & 07777, ::geteuid()));
}

bool same_file(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

std::string MachineDirectory::short_path(const char* name) const {
  return fmt::format("/proc/self/fd/{}/{}", directory_.get(), name);
}

// Whether whoever opens path and lock by name now gets these.
bool MachineDirectory::is_current() const {
  struct stat directory {
  }, named_directory{}, lock{}, named_lock{};
  return ::fstat(directory_.get(), &directory) == 0 && ::lstat(path_.c_str(), &named_directory) == 0 &&
         same_file(directory, named_directory) && ::fstat(lock_.get(), &lock) == 0 &&
         ::fstatat(directory_.get(), lock_name, &named_lock, AT_SYMLINK_NOFOLLOW) == 0 && same_file(lock, named_lock);
}

MachineDirectory MachineDirectory::open_locked(const std::string& path,
                                               std::chrono::steady_clock::time_point deadline) {
  constexpr std::chrono::milliseconds pause(2);
  for (;; std::this_thread::sleep_for(pause)) {
    const bool made = make(path);
    try {
      MachineDirectory directory(path, opened(path));
      if (directory.directory_) {
        check_private(path, directory.directory_);
        if (directory.try_lock() && directory.lock_ && directory.is_current()) return directory;
      }
    } catch (...) {
      if (made) ::rmdir(path.c_str());  // unless somebody else uses it by now
      throw;
    }
    if (std::chrono::steady_clock::now() > deadline)
      throw std::system_error(
          ETIMEDOUT, std::generic_category(),
          fmt::format("the lock of the emulated machine '{}' is held by another process, which is starting or ending "
                      "the machine and does not get on: end that process, or name another machine",
                      path));
  }
}

bool MachineDirectory::has_socket() const noexcept {
  return ::faccessat(directory_.get(), socket_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool MachineDirectory::try_lock() {
  lock_ = FileDescriptor(
      ::openat(directory_.get(), lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!lock_ && errno == ENOENT) return true;
  if (!lock_) throw_errno(fmt::format("cannot open the lock of the emulated machine '{}'", path_));
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK && errno != EINTR)
    throw_errno(fmt::format("cannot take the lock of the emulated machine '{}'", path_));
  lock_ = FileDescriptor();
  return false;
}

// Said so, and not by closing alone: a forked child may have the descriptor, too.
void MachineDirectory::unlock() noexcept {
  if (lock_) ::flock(lock_.get(), LOCK_UN);
  lock_ = FileDescriptor();
}

void MachineDirectory::remove_channels() const noexcept {
  const int folder = ::openat(directory_.get(), channels_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  DIR* const entries = ::fdopendir(folder);
  if (entries == nullptr) {
    ::close(folder);
    return;
  }
  while (const dirent* const entry = ::readdir(entries))
    if (std::strncmp(entry->d_name, "channel", std::strlen("channel")) == 0) ::unlinkat(folder, entry->d_name, 0);
  ::closedir(entries);
  ::unlinkat(directory_.get(), channels_name, AT_REMOVEDIR);
}

void MachineDirectory::make_channels(int count) const {
  remove_channels();
  if (::mkdirat(directory_.get(), channels_name, 0755) != 0)
    throw_errno(fmt::format("cannot make the folder of IMEX channels of the emulated machine '{}'", path_));
  const FileDescriptor folder(
      ::openat(directory_.get(), channels_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  bool made = ::fchmod(folder.get(), 0755) == 0;
  for (int number = 0; number < count && made; ++number) {
    const FileDescriptor channel(
        ::openat(folder.get(), fmt::format("channel{}", number).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    made = channel && ::fchmod(channel.get(), 0666) == 0;  // whatever the process's umask
  }
  if (!made) throw_errno(fmt::format("cannot make the IMEX channels of the emulated machine '{}'", path_));
}

void MachineDirectory::remove() noexcept {
  ::unlinkat(directory_.get(), socket_name, 0);
  remove_channels();
  const bool current = is_current();
  ::unlinkat(directory_.get(), lock_name, 0);
  if (current) ::rmdir(path_.c_str());
  unlock();
}

std::string machines_of_user() {
  const char* const runtime = ::secure_getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  const bool usable = runtime != nullptr && *runtime == '/' && ::stat(runtime, &status) == 0 &&
                      S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
  std::string path = usable ? std::string(runtime) + "/cuvmm" : fmt::format("/tmp/cuvmm-{}", ::geteuid());
  static_cast<void>(make(path));
  const FileDescriptor directory = opened(path);
  if (!directory) throw_errno(path);
  check_private(path, directory);
  return path;
}

std::string fresh_machine() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) throw_errno("no random number (getrandom)");
  return fmt::format("{}/emulate-{}-{:016x}", machines_of_user(), ::getpid(), number);
}

}  // namespace cuvmm::emulator::broker
