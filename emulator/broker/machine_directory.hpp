// The directory of a machine that processes share: how they find it, and how they take turns.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "emulator/memory/file_descriptor.hpp"

namespace cuvmm::emulator::broker {

inline constexpr const char* socket_name = "socket";
inline constexpr const char* channels_name = "imex-channels";

// A directory that nobody else can enter, with the files `socket`, on which the broker listens, `lock`, and the folder
// `imex-channels`. Who makes or ends the machine has the lock, and who connects, so that no broker ends just then.
class MachineDirectory {
 public:
  // Opens the directory, made if need be, and takes its lock. Throws std::system_error, with the way
  // out, if it is not this user's alone or if the lock is not to be had until the deadline.
  [[nodiscard]] static MachineDirectory open_locked(const std::string& path,
                                                    std::chrono::steady_clock::time_point deadline);

  // For the broker: the directory that is open as that descriptor.
  MachineDirectory(std::string path, memory::FileDescriptor directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] int descriptor() const noexcept { return directory_.get(); }
  // A path of a file in it that is short, as those of sockets have to be. Good in this process.
  [[nodiscard]] std::string short_path(const char* name) const;

  // Whether a broker was made for it: under the lock there is none without.
  [[nodiscard]] bool has_socket() const noexcept;

  // Takes the lock if it is free. Where the directory was removed by somebody, nobody can come any more: true as well.
  [[nodiscard]] bool try_lock();
  void unlock() noexcept;

  // Makes the folder of channels anew, with so many. For who has the lock. Throws std::system_error.
  void make_channels(int count) const;

  // Removes the machine's files, and the directory if it is empty then. For who has the lock, which goes with it.
  void remove() noexcept;

 private:
  [[nodiscard]] bool is_current() const;
  void remove_channels() const noexcept;

  std::string path_;
  memory::FileDescriptor directory_;
  memory::FileDescriptor lock_;
};

// Where the machines of this user are that have names: cuvmm in $XDG_RUNTIME_DIR, or /tmp/cuvmm-UID. Made if need be.
// Throws std::system_error.
[[nodiscard]] std::string machines_of_user();

// The path of a machine that nobody uses.
[[nodiscard]] std::string fresh_machine();

}  // namespace cuvmm::emulator::broker
