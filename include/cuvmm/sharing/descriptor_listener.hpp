// Where other processes of this host connect to.
#pragma once

#include <functional>
#include <list>

#include "cuvmm/sharing/descriptor_socket.hpp"

namespace cuvmm::sharing {

struct ListenerOptions {
  ConnectionOptions connection{};
  // How long one that has connected may take to say who it is. Others are accepted meanwhile.
  std::chrono::milliseconds introduction{5'000};
  // Told of each one that was turned away, after it was told why. Called by accept(); must not throw.
  std::function<void(const Failure&)> on_refusal{};
};

// Listens at an address. A file that a listener left behind which is gone is replaced; one that somebody listens at is
// not. The file is removed by the process that made it, if it is still the same file.
//
// One thread at a time may use an object. A moved-from one may only be assigned to or destroyed.
class DescriptorListener {
 public:
  // The directory of a path has to be this user's and open to nobody else; it is made if it is missing. Throws
  // InvalidUse if it is not private, or if somebody listens at that address; TimedOut where others make or remove
  // listeners in that directory until the deadline; OutOfDescriptors; and Error as the system fails.
  [[nodiscard]] static DescriptorListener listen(const SocketAddress& address, const ListenerOptions& options,
                                                 const Deadline& deadline);

  DescriptorListener(DescriptorListener&& other) noexcept;
  DescriptorListener& operator=(DescriptorListener&& other) noexcept;
  DescriptorListener(const DescriptorListener&) = delete;
  DescriptorListener& operator=(const DescriptorListener&) = delete;
  ~DescriptorListener() { close(); }

  // The next one that has connected and is welcome. Those that are not are told why and dropped; one that says nothing
  // keeps nobody waiting. Where this process has no descriptor left for more of them, those that have connected before
  // are served all the same, and the others wait in the system's queue. Throws TimedOut; OutOfDescriptors where there
  // was none left until the deadline; and Error as the system fails.
  [[nodiscard]] DescriptorSocket accept(const Deadline& deadline) { return try_accept(deadline).value(); }
  [[nodiscard]] Result<DescriptorSocket> try_accept(const Deadline& deadline);

  [[nodiscard]] const SocketAddress& address() const noexcept { return address_; }
  // For poll(): one of them is readable when accept() has something to do. Where this process had no descriptor left,
  // that is after a pause, so that nobody turns in circles until others give some back. Ask again after each accept().
  [[nodiscard]] std::vector<int> descriptors() const;

  // Stops listening now and removes the file. Connections that were accepted stay.
  void close() noexcept;

 private:
  struct Newcomer {
    DescriptorSocket socket;
    Deadline deadline;
  };
  struct File {  // that this process made
    unsigned long long device = 0;
    unsigned long long inode = 0;
    int process = 0;
  };

  DescriptorListener(UniqueDescriptor socket, UniqueDescriptor timer, SocketAddress address, ListenerOptions options);
  [[nodiscard]] Result<void> admit_or_rest();
  [[nodiscard]] Result<void> admit_newcomers();
  [[nodiscard]] Result<void> wait(const Deadline& deadline);
  [[nodiscard]] std::optional<DescriptorSocket> next_welcome();
  void turn_away(DescriptorSocket& socket, const Failure& failure) const noexcept;

  UniqueDescriptor socket_;
  UniqueDescriptor timer_;         // announces the end of the rest
  std::optional<Deadline> rests_;  // until then nobody is admitted: there was no descriptor for them
  SocketAddress address_;
  ListenerOptions options_;
  std::optional<File> file_;
  std::list<Newcomer> newcomers_;
};

}  // namespace cuvmm::sharing
