#include "tour/input_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "command/input_error.hpp"
#include "command/words.hpp"

namespace cuvmm::tour {
namespace {

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

// Why a file of that kind is refused, or nothing for an ordinary one.
std::string refusal(mode_t mode) {
  if (S_ISREG(mode)) return {};
  if (S_ISDIR(mode)) return "is a directory: name one of the files in it";
  constexpr auto several_times = "; the tour reads its input more than once, so save it to a file and name that";
  if (S_ISFIFO(mode)) return std::string("is a pipe") + several_times;
  if (S_ISSOCK(mode)) return std::string("is a socket") + several_times;
  return std::string("is a device") + several_times;
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // Opening a pipe without a writer would wait for one; O_NONBLOCK matters to nothing else that is let through.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor_ < 0) {
    const int error = errno;
    if (error == ENOENT) throw command::InputError(fmt::format("{} does not exist.", command::quoted(path_)));
    if (error == ENXIO) throw command::InputError(fmt::format("{} {}.", command::quoted(path_), refusal(S_IFSOCK)));
    throw command::InputError(fmt::format("{} cannot be opened: {}.", command::quoted(path_), reason_of(error)));
  }
  try {
    const struct ::stat facts = status();
    if (const std::string why = refusal(facts.st_mode); !why.empty()) {
      throw command::InputError(fmt::format("{} {}.", command::quoted(path_), why));
    }
    size_ = static_cast<std::uint64_t>(facts.st_size);
    modified_ = facts.st_mtim;
    std::byte one{};
    if (size_ == 0 && ::pread(descriptor_, &one, 1, 0) > 0) {
      throw command::InputError(
          fmt::format("{} has content but tells no size, as files in /proc do: copy it and name the copy.",
                      command::quoted(path_)));
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

struct ::stat InputFile::status() const {
  struct ::stat facts {};
  if (::fstat(descriptor_, &facts) != 0) {
    throw command::InputError(fmt::format("{} cannot be examined: {}.", command::quoted(path_), reason_of(errno)));
  }
  return facts;
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw command::InputError(fmt::format("{} cannot be read: {}.", command::quoted(path_), reason_of(errno)));
    if (count == 0)
      throw command::InputError(
          fmt::format("{} became shorter while the tour was reading it.", command::quoted(path_)));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void InputFile::require_unchanged() const {
  const struct ::stat facts = status();
  const bool same = static_cast<std::uint64_t>(facts.st_size) == size_ && facts.st_mtim.tv_sec == modified_.tv_sec &&
                    facts.st_mtim.tv_nsec == modified_.tv_nsec;
  if (!same) {
    throw command::InputError(fmt::format(
        "{} changed while the tour was reading it: name a file that nobody writes to.", command::quoted(path_)));
  }
}

}  // namespace cuvmm::tour
