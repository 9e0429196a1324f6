// Where processes of one host meet.
#pragma once

#include <string>
#include <string_view>

namespace cuvmm::sharing {

// The address of a Unix socket; a value.
class SocketAddress {
 public:
  // A file, which exists as long as somebody listens there. Throws InvalidUse for a path that is empty, relative, or
  // longer than the 107 bytes that the system allows.
  [[nodiscard]] static SocketAddress at_path(std::string path);

  // A name without a file, known within the network namespace; whoever is in it may connect, and is then refused unless
  // the user is allowed. Throws InvalidUse for a name that is empty or longer than 107 bytes.
  [[nodiscard]] static SocketAddress abstract(std::string name);

  // A file of that name in this user's private directory: $XDG_RUNTIME_DIR/cuvmm-sharing or, where there is none,
  // /tmp/cuvmm-sharing-UID. Throws InvalidUse for a name with a slash.
  [[nodiscard]] static SocketAddress in_private_directory(std::string_view name);

  [[nodiscard]] bool is_abstract() const noexcept { return abstract_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }  // the path or the abstract name
  [[nodiscard]] std::string to_string() const;                              // an abstract one with an '@' in front

  friend bool operator==(const SocketAddress&, const SocketAddress&) noexcept = default;

 private:
  SocketAddress(std::string name, bool abstract) : name_(std::move(name)), abstract_(abstract) {}

  std::string name_;
  bool abstract_;
};

}  // namespace cuvmm::sharing
