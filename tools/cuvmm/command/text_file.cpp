#include "command/text_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "command/input_error.hpp"
#include "command/words.hpp"

namespace cuvmm::command {
namespace {

// Closed when it goes.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] int get() const noexcept { return number_; }
  // Whether the system took all that was written, which some tell only now.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

[[noreturn]] void refuse(const std::string& path, std::string_view what) {
  throw InputError(fmt::format("{} {}.", quoted(path), what));
}

[[noreturn]] void refuse_for_errno(const std::string& path, std::string_view what) {
  refuse(path, fmt::format("{} ({})", what, std::generic_category().message(errno)));
}

void check_regular(const std::string& path, int descriptor, std::uint64_t most_bytes) {
  struct ::stat facts {};
  if (::fstat(descriptor, &facts) != 0) refuse_for_errno(path, "cannot be read");
  if (S_ISDIR(facts.st_mode)) refuse(path, "is a directory: name one of the files in it");
  if (!S_ISREG(facts.st_mode)) refuse(path, "is no regular file: save what it gives to one, and name that");
  if (static_cast<std::uint64_t>(facts.st_size) > most_bytes)
    refuse(path, fmt::format("has {}; it may have {} at most",
                             bytes_in_words(static_cast<std::uint64_t>(facts.st_size)), bytes_in_words(most_bytes)));
}

}  // namespace

std::string content_of_file(const std::string& path, std::uint64_t most_bytes) {
  // Opening a pipe without a writer would wait for one; O_NONBLOCK matters to nothing else that is let through.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (file.get() < 0) refuse_for_errno(path, "cannot be read");
  check_regular(path, file.get(), most_bytes);
  std::string content;
  char buffer[65536];
  while (true) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_for_errno(path, "cannot be read");
    if (count == 0) return content;
    content.append(buffer, static_cast<std::size_t>(count));
    if (content.size() > most_bytes)  // it grows, or tells no size, as files in /proc do
      refuse(path, fmt::format("has more than {}, which is the most that it may have", bytes_in_words(most_bytes)));
  }
}

void check_writable(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
  if (file.get() < 0) refuse_for_errno(path, "cannot be written");
}

bool are_same_file(const std::string& one, const std::string& other) {
  struct ::stat first {
  }, second{};
  const bool first_exists = ::stat(one.c_str(), &first) == 0;
  const bool second_exists = ::stat(other.c_str(), &second) == 0;
  if (first_exists != second_exists) return false;
  if (first_exists) return S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  std::error_code unresolved;  // the path is kept as it is then
  const auto resolved = [&](const std::string& path) {
    const std::filesystem::path found = std::filesystem::weakly_canonical(std::filesystem::absolute(path), unresolved);
    return unresolved ? std::filesystem::path(path) : found;
  };
  return resolved(one) == resolved(other);
}

void write_file(const std::string& path, const std::string& text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666));
  if (file.get() < 0) refuse_for_errno(path, "cannot be written");
  for (std::string_view left = text; !left.empty();) {
    const ssize_t count = ::write(file.get(), left.data(), left.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_for_errno(path, "cannot be written");
    left.remove_prefix(static_cast<std::size_t>(count));
  }
  if (!file.close()) refuse_for_errno(path, "cannot be written");
}

}  // namespace cuvmm::command
