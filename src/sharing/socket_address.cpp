#include "cuvmm/sharing/socket_address.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "refusal.hpp"
#include "sharing/unix_address.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::size_t most_name_bytes = sizeof(sockaddr_un::sun_path) - 1;

[[noreturn]] void refuse(std::string_view call, std::string_view name, std::string rule, std::string way_out) {
  raise(invalid_use(call, fmt::format("'{}'", name), std::move(rule), std::move(way_out)));
}

void require_length(std::string_view call, std::string_view name) {
  if (name.empty()) refuse(call, name, "An address has a name", "Name one");
  if (name.size() > most_name_bytes)
    refuse(call, name,
           fmt::format("The name of a Unix socket has at most {} bytes, and this has {}", most_name_bytes, name.size()),
           "Choose a shorter directory, or SocketAddress::abstract");
}

}  // namespace

SocketAddress SocketAddress::at_path(std::string path) {
  constexpr std::string_view call = "SocketAddress::at_path";
  require_length(call, path);
  if (path.front() != '/' || path.back() == '/' || path.find('\0') != std::string::npos)
    refuse(call, path, "The path of a socket is absolute and names a file", "Pass an absolute path");
  return {std::move(path), false};
}

SocketAddress SocketAddress::abstract(std::string name) {
  require_length("SocketAddress::abstract", name);
  return {std::move(name), true};
}

SocketAddress SocketAddress::in_private_directory(std::string_view name) {
  if (name.empty() || name.find('/') != std::string_view::npos || name == "." || name == "..")
    refuse("SocketAddress::in_private_directory", name, "The name of a file in the directory has no slash",
           "Use SocketAddress::at_path for other directories");
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string directory = runtime != nullptr && *runtime == '/'
                                    ? fmt::format("{}/cuvmm-sharing", runtime)
                                    : fmt::format("/tmp/cuvmm-sharing-{}", ::geteuid());
  return at_path(fmt::format("{}/{}", directory, name));
}

std::string SocketAddress::to_string() const {
  return abstract_ ? '@' + name_ : name_;
}

UnixAddress unix_address(const SocketAddress& address) {
  UnixAddress converted;
  converted.content.sun_family = AF_UNIX;
  const std::size_t begin = address.is_abstract() ? 1 : 0;  // an abstract name begins with a zero
  std::memcpy(converted.content.sun_path + begin, address.name().data(), address.name().size());
  converted.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.name().size() + 1);
  return converted;
}

}  // namespace cuvmm::sharing
